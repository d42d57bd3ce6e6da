/* From what the data are to a configuration that trains. The rules are few and plain, so that what they choose can be
 * understood and changed. The fewer the samples, the smaller the network and the batch, and the stronger the decay:
 *
 *   tokens                  a GPT, small for little text; adamw
 *   vectors                 the linear model where samples are few for the number of inputs, else a perceptron of the
 *                           table's row
 *   images up to 48 pixels  LeNet where they are grey, else ResNet-20
 *   larger images           a residual network with the stem for large images, of the table's row
 *   batch                   by the number of samples, 8 to 128
 *   epochs                  as many as make some thousand steps */
#include "cli/train/init.h"

#include "engine/base/text.h"

#include <math.h>
#include <string.h>

enum { SMALL = 48, LENET_LEAST = 12, FEW = 100 /* held out, by which no step is chosen */ };
enum { LINEAR_MOST = 1000, LINEAR_EACH = 20 }; /* samples, and samples for each input, below which a table is linear */
struct choice {                                /* for fewer samples than these */
    int64_t samples;
    const char *model, *about;
    const char *way; /* of perceptrons: the learning rate; of pictures: how parts are cut out */
    int64_t batch, steps;
};
static const struct choice perceptrons[] = {
    {1000, "{zoo: mlp, hidden: [64]}", "one hidden layer: more would memorise so few samples", "3e-3", 32, 2000},
    {10000, "{zoo: mlp, hidden: [128]}", "one hidden layer: more would memorise the samples", "3e-3", 64, 4000},
    {50000, "{zoo: mlp, hidden: [128, 128]}", "a perceptron with two hidden layers", "2e-3", 128, 4000},
    {INT64_MAX, "{zoo: mlp, hidden: [256, 256]}", "wide, since there are many samples", "2e-3", 128, 4000},
};
static const struct choice networks[] = {
    {1000, "{zoo: resnet20, stem: imagenet}", "small, since pictures are few; resnet18 needs thousands",
     "{random_resized_crop: {scale: [0.4, 1]}}", 16, 1500},
    {20000, "{zoo: resnet20, stem: imagenet, width: 32}", "twice resnet20's channels; resnet18 needs more pictures",
     "{random_resized_crop: {scale: [0.4, 1]}}", 32, 4000},
    {INT64_MAX, "{zoo: resnet18, stem: imagenet}", "torchvision's names: init: FILE can begin with trained weights",
     "random_resized_crop", 64, 4000},
};
struct recipe {
    const char *model, *about, *optimizer, *rule, *augment, *changes, *best;
    int64_t batch, epochs, steps, warmup, every;
    bool whole; /* batches only: batchnorm cannot normalise a sample by itself */
};

/* ---- choices ---- */

static bool recipe_is_image(const struct init_facts *f) {
    return f->shape.ndim == 3 && f->plane;
}

static int64_t recipe_at_least(int64_t n, int64_t least) {
    return n < least ? least : n;
}

static int64_t recipe_at_most(int64_t n, int64_t most) {
    return n > most ? most : n;
}

static void recipe_batch(const struct init_facts *f, struct recipe *r, int64_t most) {
    r->batch = 8;
    while (r->batch < most && r->batch * 8 < f->train) r->batch *= 2;
    r->batch = recipe_at_most(r->batch, f->train);
}

static void recipe_length(const struct init_facts *f, struct recipe *r, int64_t steps, int64_t most) {
    int64_t each = recipe_at_least(f->train / r->batch, 1);
    r->epochs = recipe_at_most(recipe_at_least((steps + each - 1) / each, 5), most);
    r->steps = r->epochs * each;
    r->warmup = recipe_at_most(r->steps / 20, 100);
    r->every = recipe_at_least(r->epochs / 25, 1);
}

static void recipe_for_tokens(const struct init_facts *f, struct recipe *r) {
    bool little = f->train * f->context < 2000000;
    r->model = little ? "gpt-nano" : "gpt-mini";
    r->about =
        little ? "a small GPT, for little text; gpt-mini is larger" : "6 layers of 192 features; gpt-nano is smaller";
    r->optimizer = "{name: adamw, lr: 1e-3, weight_decay: 0.1, decay: matrices, clip: 1}";
    recipe_batch(f, r, 32);
    recipe_length(f, r, 2000, 50);
}

/* The recipe for few vectors: a linear model. Its one minimum is found by plain gradient descent, whose rate must fall with
 * the number of inputs. */
static void recipe_for_few_vectors(const struct init_facts *f, struct recipe *r, int64_t inputs, struct pool *pool) {
    r->model = "{zoo: mlp, hidden: []}";
    r->about = pool_printf(pool, "linear: %lld samples are few for %lld inputs; [64] is a hidden layer",
                           (long long)f->train, (long long)inputs);
    r->optimizer =
        pool_printf(pool, "{name: sgd, lr: %.2g, momentum: 0.9, weight_decay: 0.02, decay: matrices, clip: 1}",
                    1.0 / (double)recipe_at_least(inputs, 32));
    r->rule = "strong decay, for few samples";
    r->best = NULL;
    recipe_batch(f, r, 16);
    recipe_length(f, r, 1500, 200);
}

static void recipe_for_vectors(const struct init_facts *f, struct recipe *r, struct pool *pool) {
    int64_t inputs = shape_count(&f->shape);
    const struct choice *c = perceptrons;
    if (f->train < LINEAR_MOST && f->train / LINEAR_EACH < inputs) {
        recipe_for_few_vectors(f, r, inputs, pool);
        return;
    }
    while (f->train >= c->samples) c++;
    r->model = c->model, r->about = c->about;
    r->optimizer = pool_printf(pool, "{name: adamw, lr: %s, weight_decay: %.2g, decay: matrices}", c->way,
                               fmax(0.01, fmin(1, 300.0 / (double)f->train)));
    r->rule = "the more samples, the less decay";
    recipe_batch(f, r, c->batch);
    recipe_length(f, r, recipe_at_least(c->steps, 12 * f->train / r->batch), 200);
}

/* Small grey images, as of digits. */
static void recipe_for_grey_images(const struct init_facts *f, struct recipe *r) {
    r->model = "lenet";
    r->about = "for small grey images; engine model list shows others";
    recipe_batch(f, r, f->train < 1000 ? 16 : f->train < 10000 ? 32 : 128);
    recipe_length(f, r, 2000, 100);
}

static void recipe_for_pictures(const struct init_facts *f, struct recipe *r, bool small, struct pool *pool) {
    const struct choice *c = networks;
    while (f->train >= c->samples) c++;
    r->model = small ? "resnet20" : c->model;
    r->about = small ? "for small colour images; engine model list shows others" : c->about;
    const char *way = f->size ? c->way : small ? "{crop: 4}" : NULL;
    r->changes = f->characters ? "at random, in training only"
                               : "at random, in training only; remove flip where left and right differ";
    if (f->characters) /* a character that is turned round is another */
        r->augment = way ? pool_printf(pool, "[%s]", way) : NULL;
    else
        r->augment = way ? pool_printf(pool, "[flip, %s]", way) : "[flip]";
    if (f->val < FEW) r->best = NULL;
    r->whole = true;
    recipe_batch(f, r, c->batch);
    recipe_length(f, r, c->steps, 100);
}

static void recipe_for_images(const struct init_facts *f, struct recipe *r, struct pool *pool) {
    bool small = recipe_at_most(f->shape.dim[1], f->shape.dim[2]) <= SMALL;
    r->optimizer = "{name: adamw, lr: 2e-3, weight_decay: 0.05, decay: matrices}";
    if (f->shape.dim[0] == 1 && small)
        recipe_for_grey_images(f, r);
    else
        recipe_for_pictures(f, r, small, pool);
}

static struct recipe recipe_choose(const struct init_facts *f, struct pool *pool) {
    /* The accuracy of few samples is the same for many steps; their loss is not. */
    bool accuracy = f->type != SAMPLE_TOKENS && f->classes && f->val >= 1000;
    struct recipe r = {.best = accuracy ? "val.accuracy" : "val.loss"};
    if (f->type == SAMPLE_TOKENS)
        recipe_for_tokens(f, &r);
    else if (recipe_is_image(f) && f->shape.dim[1] >= LENET_LEAST && f->shape.dim[2] >= LENET_LEAST)
        recipe_for_images(f, &r, pool);
    else
        recipe_for_vectors(f, &r, pool);
    return r;
}

/* ---- writing ---- */

struct sheet {
    struct pool *pool;
    const char *text;
};

/* "key: value", with a comment in its column. */
static void sheet_line(struct sheet *s, const char *key, const char *value, const char *comment) {
    char pad[48] = "";
    size_t n = strlen(key) + strlen(value) + 2;
    memset(pad, ' ', n < 40 ? 40 - n : 1);
    if (!s->text) return;
    s->text = pool_printf(s->pool, "%s%s: %s%s%s%s\n", s->text, key, value, comment ? pad : "", comment ? "# " : "",
                          comment ? comment : "");
}

static void sheet_number(struct sheet *s, const char *key, int64_t value, const char *unit, const char *comment) {
    const char *text = pool_printf(s->pool, "%lld%s", (long long)value, unit);
    if (text) sheet_line(s, key, text, comment);
}

static const char *recipe_samples_word(const struct init_facts *f) {
    return f->size                    ? "pictures"
           : f->type == SAMPLE_TOKENS ? "windows of text"
           : recipe_is_image(f)       ? "images"
                                      : "samples";
}

static void recipe_write_head(struct sheet *s, const struct init_facts *f, const char *path) {
    char train[32], val[32], classes[96] = "";
    if (f->classes && f->type != SAMPLE_TOKENS)
        snprintf(classes, sizeof classes, ", %lld classes%s", (long long)f->classes, *f->names ? ": " : "");
    s->text = pool_printf(s->pool,
                          "# Written by 'engine init': %s %s to train on, %s to validate%s%s\n"
                          "#   engine run %s           trains; engine config --check examines it beforehand\n"
                          "#   engine predict %s FILE  answers for new files; engine eval measures it\n"
                          "#   engine help KEY         says what a key means, as in engine help optimizer.lr\n\n",
                          text_of_count(f->train, train), recipe_samples_word(f), text_of_count(f->val, val), classes,
                          *classes ? f->names : "", path, path);
}

static void recipe_write_data(struct sheet *s, const struct init_facts *f, const struct recipe *r) {
    s->text = s->text ? pool_printf(s->pool, "%s\ndata:\n", s->text) : NULL;
    sheet_line(s, "  set", f->set, f->generated ? "drawn by the engine; nothing is read" : NULL);
    if (!f->generated) sheet_line(s, "  train", f->data, "seen from this file's folder");
    if (f->val_file) sheet_line(s, "  val", f->val_file, "the samples to validate on");
    if (!f->generated && !f->own_parts && !f->val_file) sheet_line(s, "  val", "10%", "held out; or a file of its own");
    if (f->own_parts) sheet_line(s, "  # val", "10%", "share held out if there is no validation file");
    if (f->target) sheet_line(s, "  target", f->target, "the column that is predicted");
    if (f->signs)
        sheet_line(s, "  categorical", pool_printf(s->pool, "[%s]", f->target), "-1 and 1 are classes, no numbers");
    if (f->target) sheet_line(s, "  # without", "[NAME]", "columns that tell nothing, as numbers of rows do not");
    if (f->size)
        sheet_number(s, "  size", f->size, "",
                     f->size < f->side ? "pixels per side; more take longer" : "pixels per side");
    if (f->unreadable) sheet_line(s, "  on_error", "skip", "files that cannot be read, which engine data check names");
    if (f->context) sheet_number(s, "  context", f->context, "", "tokens that are looked at together");
    if (f->type != SAMPLE_TOKENS) sheet_line(s, "  normalize", "auto", "by mean and deviation of the training samples");
    if (r->augment) sheet_line(s, "  augment", r->augment, r->changes);
}

static void recipe_write_training(struct sheet *s, const struct init_facts *f, const struct recipe *r) {
    const char *batch = pool_printf(s->pool, r->whole ? "{size: %lld, drop_last: true}" : "%lld", (long long)r->batch);
    const char *warmup =
        r->warmup ? pool_printf(s->pool, "{name: cosine, warmup: %lldst}", (long long)r->warmup) : "cosine";
    const char *saved = r->best ? pool_printf(s->pool, "{every: %lldep, best: %s}", (long long)r->every, r->best)
                                : pool_printf(s->pool, "%lldep", (long long)r->every);
    s->text = s->text ? pool_printf(s->pool, "%s\n", s->text) : NULL;
    if (!batch || !warmup || !saved) s->text = NULL;
    if (!s->text) return;
    sheet_line(s, "batch", batch, "samples of a step, over all devices; small where samples are few");
    sheet_number(s, "train", r->epochs, "ep", "epochs; or a number of steps (500st), or a time (10min)");
    if (f->values) sheet_line(s, "loss", "mse", "the target is a number");
    sheet_line(s, "optimizer", r->optimizer, r->rule);
    sheet_line(s, "schedule", warmup, "the rate falls to nothing at the end");
    sheet_number(s, "eval", r->every, "ep", "how often the validation part is measured");
    sheet_line(s, "checkpoint", saved,
               r->best ? "the best is what eval and predict take"
                       : "too few are held out to choose the best by; the last is taken");
}

const char *init_text(const struct init_facts *f, const char *path, struct pool *pool, struct init_length *length) {
    struct sheet s = {.pool = pool};
    struct recipe r = recipe_choose(f, pool);
    *length = (struct init_length){r.steps, r.batch, r.epochs / r.every, f->val};
    recipe_write_head(&s, f, path);
    sheet_line(&s, "model", r.model, r.about);
    recipe_write_data(&s, f, &r);
    recipe_write_training(&s, f, &r);
    return s.text;
}
