/* From what the data are to a configuration that trains. The rules are few and plain, so that what they choose can be
 * understood and changed:
 *
 *   tokens                  a GPT, small for little text; adamw
 *   vectors                 a perceptron; adam
 *   images up to 48 pixels  LeNet where they are grey, else ResNet-20; sgd with momentum
 *   larger images           ResNet-18 with the stem for large images; the same
 *   batch                   by the number of samples, 8 to 128
 *   epochs                  as many as make some thousand steps */
#include "cli/init.h"

#include "engine/base/text.h"

#include <string.h>

enum { SMALL = 48, LENET_LEAST = 12 };
struct recipe {
    const char *model, *about, *optimizer, *augment, *changes;
    int64_t batch, epochs, steps, warmup, every;
    bool whole; /* batches only: batchnorm cannot normalise a sample by itself */
};

/* ---- choices ---- */

static bool is_image(const struct init_facts *f) {
    return f->shape.ndim == 3 && f->plane;
}

static int64_t at_least(int64_t n, int64_t least) {
    return n < least ? least : n;
}

static int64_t at_most(int64_t n, int64_t most) {
    return n > most ? most : n;
}

static void choose_batch(const struct init_facts *f, struct recipe *r, int64_t most) {
    r->batch = 8;
    while (r->batch < most && r->batch * 8 < f->train) r->batch *= 2;
    r->batch = at_most(r->batch, f->train);
}

static void choose_length(const struct init_facts *f, struct recipe *r, int64_t steps, int64_t most) {
    int64_t each = at_least(f->train / r->batch, 1);
    r->epochs = at_most(at_least((steps + each - 1) / each, 5), most);
    r->steps = r->epochs * each;
    r->warmup = at_most(r->steps / 20, 100);
    r->every = at_least(r->epochs / 25, 1);
}

static void for_tokens(const struct init_facts *f, struct recipe *r) {
    bool little = f->train * f->context < 2000000;
    r->model = little ? "gpt-nano" : "gpt-mini";
    r->about = little ? "a small GPT; gpt-mini is larger" : "6 layers of 192 features; gpt-nano is smaller";
    r->optimizer = "{name: adamw, lr: 1e-3, weight_decay: 0.1, decay: matrices, clip: 1}";
    choose_batch(f, r, 32);
    choose_length(f, r, 2000, 50);
}

static void for_vectors(const struct init_facts *f, struct recipe *r) {
    r->model = "{zoo: mlp, hidden: [64, 64]}";
    r->about = "a perceptron with two hidden layers";
    r->optimizer = "{name: adam, lr: 1e-3}";
    choose_batch(f, r, 128);
    choose_length(f, r, 3000, 200);
}

static void for_images(const struct init_facts *f, struct recipe *r, struct pool *pool) {
    int64_t side = at_most(f->shape.dim[1], f->shape.dim[2]);
    bool grey = f->shape.dim[0] == 1, small = side <= SMALL;
    r->whole = !(grey && small);
    r->model = !small ? "{zoo: resnet18, stem: imagenet}" : grey ? "lenet" : "resnet20";
    r->about = !small ? "its names are torchvision's, so that init: FILE can begin with trained weights"
               : grey ? "for small grey images; engine model list shows others"
                      : "for small colour images; engine model list shows others";
    choose_batch(f, r, grey ? 128 : 64);
    choose_length(f, r, grey ? 1500 : 4000, grey ? 60 : 100);
    r->optimizer = pool_printf(pool, "{name: sgd, lr: %.3g, momentum: 0.9, weight_decay: 5e-4}",
                               (double)r->batch * (grey ? 0.05 : 0.1) / 128);
    if (!grey) r->augment = small ? "[flip, {crop: 4}]" : f->size ? "[random_resized_crop, flip]" : "[flip]";
    if (!grey) r->changes = "at random, for training alone; without flip where left and right differ";
}

static struct recipe choose(const struct init_facts *f, struct pool *pool) {
    struct recipe r = {0};
    if (f->type == SAMPLE_TOKENS)
        for_tokens(f, &r);
    else if (is_image(f) && f->shape.dim[1] >= LENET_LEAST && f->shape.dim[2] >= LENET_LEAST)
        for_images(f, &r, pool);
    else
        for_vectors(f, &r);
    return r;
}

/* ---- writing ---- */

struct sheet {
    struct pool *pool;
    const char *text;
};

/* "key: value", with a comment in its column. */
static void line(struct sheet *s, const char *key, const char *value, const char *comment) {
    char pad[48] = "";
    size_t n = strlen(key) + strlen(value) + 2;
    memset(pad, ' ', n < 40 ? 40 - n : 1);
    if (!s->text) return;
    s->text = pool_printf(s->pool, "%s%s: %s%s%s%s\n", s->text, key, value, comment ? pad : "", comment ? "# " : "",
                          comment ? comment : "");
}

static void number(struct sheet *s, const char *key, int64_t value, const char *unit, const char *comment) {
    const char *text = pool_printf(s->pool, "%lld%s", (long long)value, unit);
    if (text) line(s, key, text, comment);
}

static const char *samples_word(const struct init_facts *f) {
    return f->size ? "pictures" : f->type == SAMPLE_TOKENS ? "windows of text" : is_image(f) ? "images" : "samples";
}

static void write_head(struct sheet *s, const struct init_facts *f, const char *path) {
    char train[32], val[32], classes[96] = "";
    if (f->classes && f->type != SAMPLE_TOKENS)
        snprintf(classes, sizeof classes, ", %lld classes%s", (long long)f->classes, *f->names ? ": " : "");
    s->text = pool_printf(s->pool,
                          "# Written by 'engine init': %s %s to train on, %s to validate%s%s\n"
                          "#   engine run %s           trains; engine validate checks it beforehand\n"
                          "#   engine predict %s FILE  asks what was trained; engine eval measures it\n"
                          "#   engine help KEY         says what a key means, as in engine help optimizer.lr\n\n",
                          text_of_count(f->train, train), samples_word(f), text_of_count(f->val, val), classes,
                          *classes ? f->names : "", path, path);
}

static void write_data(struct sheet *s, const struct init_facts *f, const struct recipe *r) {
    s->text = s->text ? pool_printf(s->pool, "%s\ndata:\n", s->text) : NULL;
    line(s, "  set", f->set, f->generated ? "drawn by the engine; nothing is read" : NULL);
    if (!f->generated) line(s, "  train", f->data, "seen from this file's folder");
    if (f->val_file) line(s, "  val", f->val_file, "the samples to validate on");
    if (!f->generated && !f->own_parts && !f->val_file) line(s, "  val", "10%", "held out; or a file of its own");
    if (f->own_parts) line(s, "  # val", "10%", "how much is held out where the data have no part of their own for it");
    if (f->target) line(s, "  target", f->target, "the column that is predicted");
    if (f->target) line(s, "  # without", "[NAME]", "columns that tell nothing, as numbers of rows do not");
    if (f->size) number(s, "  size", f->size, "", f->size < f->side ? "larger shows more and takes longer" : NULL);
    if (f->unreadable) line(s, "  on_error", "skip", "files that cannot be read, which engine data check names");
    if (f->context) number(s, "  context", f->context, "", "tokens that are looked at together");
    if (f->type != SAMPLE_TOKENS) line(s, "  normalize", "auto", "by mean and deviation of the training samples");
    if (r->augment) line(s, "  augment", r->augment, r->changes);
}

static void write_training(struct sheet *s, const struct init_facts *f, const struct recipe *r) {
    const char *batch = pool_printf(s->pool, r->whole ? "{size: %lld, drop_last: true}" : "%lld", (long long)r->batch);
    const char *warmup =
        r->warmup ? pool_printf(s->pool, "{name: cosine, warmup: %lldst}", (long long)r->warmup) : "cosine";
    const char *best = f->classes && f->type != SAMPLE_TOKENS ? "val.accuracy" : "val.loss";
    const char *saved = pool_printf(s->pool, "{every: %lldep, best: %s}", (long long)r->every, best);
    s->text = s->text ? pool_printf(s->pool, "%s\n", s->text) : NULL;
    if (!batch || !warmup || !saved) s->text = NULL;
    if (!s->text) return;
    line(s, "batch", batch, "samples of a step, over all devices");
    number(s, "train", r->epochs, "ep", "epochs; or a number of steps (500st), or a time (10min)");
    if (f->values) line(s, "loss", "mse", "the target is a number");
    line(s, "optimizer", r->optimizer, NULL);
    line(s, "schedule", warmup, "the rate falls to nothing at the end");
    number(s, "eval", r->every, "ep", "how often the validation part is measured");
    line(s, "checkpoint", saved, "the best is what eval and predict take");
}

const char *init_text(const struct init_facts *f, const char *path, struct pool *pool) {
    struct sheet s = {.pool = pool};
    struct recipe r = choose(f, pool);
    write_head(&s, f, path);
    line(&s, "model", r.model, r.about);
    write_data(&s, f, &r);
    write_training(&s, f, &r);
    return s.text;
}
