/* engine predict: what a trained network says of samples: of its data set by number, or of files
 * that have no labels. */
#include "cli/use/predict.h"
#include "cli/use/pictures.h"

#include "engine/base/file.h"
#include "engine/base/real.h"
#include "engine/base/text.h"
#include "engine/data/transform.h"
#include "engine/tell/score.h"
#include "engine/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP_MOST = 100, BATCH = 64 };
struct predict_options {
    struct cli_trained trained;
    struct option_list inputs;
    int64_t top;
    bool csv, logits;
    const char *output;
};
#define OPTIONS_STRUCT struct predict_options

struct asker { /* one input after the other */
    const struct predict_options *o;
    struct trainer *t;
    struct teller tell;
    float *x;
    int32_t *labels;
    float *target;
    void *raw;
    struct dataset *part[2]; /* validation and training, where the network needs neither */
    struct {
        const char *input;
        int64_t sample, truth;
    } waiting[BATCH]; /* samples in x, which are asked together */
    int nwaiting;
    int64_t answered, failed; /* samples; inputs that could not be read */
    enum error first;         /* of the failures */
};

/* ---- inputs ---- */

struct input_range { /* samples [from, to] of a set */
    struct dataset *set;
    bool own; /* a file's, to be closed */
    int64_t from, to;
};

/* "7", "0-9" */
static bool parse_range(const char *text, int64_t *from, int64_t *to) {
    char first[24];
    size_t n = strcspn(text, "-");
    if (n >= sizeof first) return false;
    snprintf(first, sizeof first, "%.*s", (int)n, text);
    if (!text_int(first, from)) return false;
    *to = *from;
    return (!text[n] || text_int(text + n + 1, to)) && *from >= 0 && *to >= *from;
}

static enum error predict_find_part(struct asker *a, bool train, struct dataset **out) {
    struct trainer *t = a->t;
    const struct run_config *c = t->config;
    *out = train ? t->feed.data : t->feed.val;
    if (!t->job->known) return ERR_NONE;
    if (!a->part[train]) {
        TRY(dataset_open_like(&c->data, train, (uint64_t)c->seed, t->feed.data, &a->part[train]));
        if (!train) TRY(data_check_held(t, a->part[train]));
    }
    *out = a->part[train];
    return ERR_NONE;
}

/* A part of the network's own data. */
static enum error predict_find_samples(struct asker *a, const char *text, struct input_range *out) {
    if (!parse_range(strchr(text, ':') + 1, &out->from, &out->to))
        return FAIL(ERR_USAGE, "'%s' is neither a sample nor a range of samples\nwrite val:7 or val:0-9", text);
    TRY(predict_find_part(a, *text == 't', &out->set));
    if (out->to < out->set->size) return ERR_NONE;
    return FAIL(ERR_INPUT, "'%s': there are %lld samples, 0 to %lld", text, (long long)out->set->size,
                (long long)out->set->size - 1);
}

static bool predict_is_part(const char *input) {
    return !strncmp(input, "val:", 4) || !strncmp(input, "train:", 6);
}

static enum error find_input(struct asker *a, const char *text, struct input_range *out) {
    *out = (struct input_range){0};
    if (predict_is_part(text)) return predict_find_samples(a, text, out);
    TRY(dataset_samples(text, a->t->feed.data, &out->set));
    dataset_tell(out->set, NULL);
    out->own = true;
    out->to = out->set->size - 1;
    return ERR_NONE;
}

/* ---- batches ---- */

/* Probabilities where the loss has made the outputs their logarithms. */
static void outputs_softmax(float *y, int64_t n) {
    int64_t best = score_best(y, n);
    float most = y[best];
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += real_exp((double)y[k] - (double)most);
    for (int64_t k = 0; k < n; k++) y[k] = (float)(real_exp((double)y[k] - (double)most) / sum);
}

/* Asks the network about the samples that wait. */
static enum error answer_waiting(struct asker *a) {
    struct trainer *t = a->t;
    const float *outputs;
    struct graph_batch batch = {.n = a->nwaiting, .x = a->x};
    if (a->nwaiting == 0) return ERR_NONE;
    TRY(graph_prepare(t->graph, a->nwaiting, NULL));
    TRY(graph_forward(t->graph, &batch, t->arena.values, t->arena.buffers, NULL));
    TRY(graph_output(t->graph, &outputs));
    int64_t all = shape_count(&t->model->output), width = a->tell.width;
    bool plain = (a->tell.classes || a->tell.logits) && !t->feed.norm.targets; /* else: what the outputs stand for */
    for (int i = 0; i < a->nwaiting; i++) {
        const float *raw = outputs + (i + 1) * all - width; /* the last row */
        memcpy(a->target, raw, (size_t)width * sizeof *raw);
        if (a->tell.likely && t->config->loss.index == LOSS_CROSS_ENTROPY) outputs_softmax(a->target, width);
        for (int64_t k = 0; k < width && t->config->loss.index == LOSS_BCE; k++)
            a->target[k] = (float)(1 / (1 + real_exp(-(double)a->target[k])));
        normalization_undo(&t->feed.norm, a->target, width);
        teller_say(&a->tell, &(struct answer){.input = a->waiting[i].input,
                                              .sample = a->waiting[i].sample,
                                              .truth = a->waiting[i].truth,
                                              .y = a->target,
                                              .raw = plain ? raw : a->target});
    }
    a->answered += a->nwaiting;
    a->nwaiting = 0;
    return ERR_NONE;
}

static enum error predict_add_sample(struct asker *a, const struct input_range *r, const char *input, int64_t i) {
    struct transform change;
    const struct dataset *d = r->set;
    int64_t labels = a->t->feed.data->labels;
    TRY(transform_init(&change, d, &a->t->config->data, &a->t->feed.norm, false, 0));
    TRY(d->ops->read(r->set, i, a->raw, a->labels, a->target));
    transform_apply(&change, d, a->raw, (uint64_t)i, a->x + a->nwaiting * shape_count(&d->shape));
    a->waiting[a->nwaiting].input = input;
    a->waiting[a->nwaiting].sample = i;
    a->waiting[a->nwaiting++].truth = r->own || !a->tell.classes ? -1 : a->labels[labels - 1];
    return a->nwaiting == BATCH ? answer_waiting(a) : ERR_NONE;
}

/* ---- what cannot be read ---- */

/* Files that are damaged or missing are named, and the others go on. */
static enum error predict_failure_note(struct asker *a, enum error err) {
    enum { NAMED_MOST = 20 };
    if (err != ERR_DATA && err != ERR_INPUT) return err;
    if (a->failed == 0) a->first = err;
    if (a->failed < NAMED_MOST) cli_fail(err);
    if (a->failed == NAMED_MOST) fprintf(stderr, "error: and others, which are not named\n");
    a->failed++;
    return ERR_NONE;
}

static enum error answer_file(struct asker *a, const char *input) {
    struct input_range r;
    enum error err = find_input(a, input, &r);
    if (err != ERR_NONE) return predict_failure_note(a, err);
    for (int64_t i = r.from; i <= r.to && err == ERR_NONE; i++)
        err = predict_failure_note(a, predict_add_sample(a, &r, input, i));
    if (r.own) dataset_close(r.set);
    return err;
}

static enum error answer_input(struct asker *a, const char *input) {
    struct pictures found;
    if (predict_is_part(input) || !file_is_folder(input)) return answer_file(a, input);
    enum error err = pictures_find(input, a->o->trained.pool, &found);
    if (err != ERR_NONE) return predict_failure_note(a, err);
    for (int64_t i = 0; i < found.count && err == ERR_NONE; i++) err = answer_file(a, found.path[i]);
    return err;
}

/* ---- all ---- */

static enum error predict_take_memory(struct asker *a) {
    const struct dataset *d = a->t->feed.data;
    a->tell.data = d;
    a->tell.classes = d->classes > 0;
    a->tell.likely = d->classes > 0 && a->t->config->loss.index != LOSS_MSE;
    a->tell.width = d->classes > 0 ? d->classes : d->targets;
    a->raw = malloc(dataset_sample_bytes(d));
    a->x = calloc((size_t)BATCH * (size_t)shape_count(&d->shape), sizeof *a->x);
    a->labels = calloc((size_t)(d->labels ? d->labels : 1), sizeof *a->labels);
    a->target = calloc((size_t)(a->tell.width + d->targets), sizeof *a->target);
    if (a->raw && a->x && a->labels && a->target) return ERR_NONE;
    return FAIL(ERR_MEMORY, "no memory for a batch of samples");
}

static enum error answer_all(struct asker *a) {
    const struct predict_options *o = a->o;
    TRY(predict_take_memory(a));
    for (int i = 0; i < o->inputs.count; i++) a->tell.truths |= predict_is_part(o->inputs.of[i]) && a->tell.classes;
    teller_open(&a->tell);
    enum error err = ERR_NONE;
    for (int i = 0; i < o->inputs.count && err == ERR_NONE; i++) err = answer_input(a, o->inputs.of[i]);
    if (err == ERR_NONE) err = answer_waiting(a);
    bool any = a->answered > 0 || a->failed == 0;
    if (err == ERR_NONE && any) err = teller_close(&a->tell);
    json_fini(&a->tell.j);
    return err;
}

/* Into memory, so that a file is whole or not there. */
static enum error answer_to_file(struct asker *a, const char *path) {
    struct file_text text;
    TRY(file_text_open(&text));
    a->tell.out = text.out;
    TRY(file_text_close(&text, answer_all(a)));
    enum error err = a->answered > 0 || a->failed == 0 ? file_replace(path, text.text, text.n) : ERR_NONE;
    free(text.text);
    return err;
}

static enum error answer_to_console(struct asker *a) {
    a->tell.out = stdout;
    TRY(answer_all(a));
    return fflush(stdout) == 0 ? ERR_NONE : FAIL(ERR_IO, "cannot write the predictions");
}

static int predict_exit_code(const struct asker *a, enum error err) {
    if (err != ERR_NONE) return cli_fail(err);
    return a->failed == 0 ? 0 : error_exit_code(a->answered == 0 ? a->first : ERR_DATA);
}

static enum predict_form predict_form_of(const struct predict_options *o) {
    const char *path = o->output ? o->output : "";
    if (o->csv || (!o->trained.json && text_ends(path, ".csv"))) return PREDICT_CSV;
    return o->trained.json || text_ends(path, ".json") ? PREDICT_JSON : PREDICT_TEXT;
}

static int predict_command(const struct cli *cli) {
    struct predict_options *o = cli->options;
    struct asker *a = pool_alloc(cli->pool, sizeof *a);
    if (!a) return cli_fail(ERR_MEMORY);
    if (o->trained.json && o->csv) return cli_usage(cli, "--json and --csv are two forms");
    *a = (struct asker){.o = o, .tell = {.form = predict_form_of(o), .top = o->top, .logits = o->logits}};
    enum error err = cli_trained_open(&o->trained, cli->pool, &a->t);
    int code = error_exit_code(err);
    if (err == ERR_NONE) code = predict_exit_code(a, o->output ? answer_to_file(a, o->output) : answer_to_console(a));
    free(a->raw);
    free(a->x);
    free(a->labels);
    free(a->target);
    for (int i = 0; i < 2; i++) dataset_close(a->part[i]);
    cli_trained_close(&o->trained, a->t);
    return code;
}

static const struct option options[] = {
    {TRAINED_PATH, .missing = "whose predictions? a run's or a configuration's"},
    {"INPUT", NULL,
     "a picture or a folder of them, for a network of square colour pictures; a file of samples without labels: .npy "
     "or IDX arrays (samples first), of the shape and type of the training data, or a .csv with the columns of the "
     "training file; or samples of its own data by number: val:0-9 or train:7",
     .at = AT(inputs), .many = OPTION_LIST,
     .missing = "of what? a picture, a folder of them, a file of samples without labels, or val:0-9"},
    {"--top", "K", "number of answers for each sample; default: 3", CONFIG_INT, AT(top), 1, TOP_MOST},
    {"--logits", NULL, "the outputs before softmax, of all classes", CONFIG_BOOL, AT(logits)},
    {"--csv", NULL, "a table with a header: input, sample, class and confidence of each answer", CONFIG_BOOL, AT(csv)},
    {"--json", NULL, "one JSON array; with the outputs before softmax (logit)", CONFIG_BOOL, AT(trained.json)},
    {"--output", "FILE", "where the answers go, instead of standard output; as CSV or JSON if it is called so",
     CONFIG_STRING, AT(output), .also = "-o"},
    TRAINED_OPTIONS,
    {0}};

const struct command command_predict = {
    .name = "predict",
    .also = "infer|inference|classify|label",
    .summary = "predicts samples with a trained network: pictures, arrays, its own data",
    OPTIONS(options),
    .notes = "Pictures of a folder and of the folders in it are taken by name. Inputs that cannot be read are named,\n"
             "and the others continue. For a sequence, the prediction is what follows its end.\n"
             "Exit codes: 0; 64 usage; 65 bad data or checkpoint, or some inputs could not be read;\n"
             "66 no such file, sample, run or checkpoint; 78 bad configuration, or weights of another model\n",
    .standard = &(const struct predict_options){.top = 3},
    .run = predict_command,
};
