/* engine predict: what a trained network says of samples: of its data set by number, or of files
 * that have no labels. */
#include "cli/cli.h"

#include "engine/base/real.h"
#include "engine/base/text.h"
#include "engine/data/transform.h"
#include "engine/tell/score.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP_MOST = 100, BATCH = 64 };
struct options {
    struct cli_trained trained;
    struct option_list inputs;
    int64_t top;
};

struct asker { /* one input after the other */
    const struct options *o;
    struct trainer *t;
    struct json j;
    float *x;
    int32_t *labels;
    float *target;
    void *raw;
    struct dataset *part[2]; /* validation and training, where the network needs neither */
    int64_t width;           /* outputs that are shown of a sample: its last row */
    bool classes;            /* they are classes; else numbers */
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

static enum error find_part(struct asker *a, bool train, struct dataset **out) {
    struct trainer *t = a->t;
    const struct run_config *c = t->config;
    *out = train ? t->feed.data : t->feed.val;
    if (!t->job->known) return ERR_NONE;
    if (!a->part[train]) TRY(dataset_open_like(&c->data, train, (uint64_t)c->seed, t->feed.data, &a->part[train]));
    *out = a->part[train];
    return ERR_NONE;
}

static enum error find_input(struct asker *a, const char *text, struct input_range *out) {
    bool val = !strncmp(text, "val:", 4), train = !strncmp(text, "train:", 6);
    *out = (struct input_range){0};
    if (!val && !train) {
        TRY(dataset_samples(text, a->t->feed.data, &out->set));
        out->own = true;
        out->to = out->set->size - 1;
        return ERR_NONE;
    }
    if (!parse_range(strchr(text, ':') + 1, &out->from, &out->to))
        return FAIL(ERR_USAGE, "'%s' is neither a sample nor a range of samples\nwrite val:7 or val:0-9", text);
    TRY(find_part(a, train, &out->set));
    if (out->to < out->set->size) return ERR_NONE;
    return FAIL(ERR_INPUT, "'%s': there are %lld samples, 0 to %lld", text, (long long)out->set->size,
                (long long)out->set->size - 1);
}

/* ---- one sample's answer ---- */

/* Probabilities where the loss has made the outputs their logarithms. */
static void softmax(float *y, int64_t n) {
    int64_t best = score_best(y, n);
    float most = y[best];
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += real_exp((double)y[k] - (double)most);
    for (int64_t k = 0; k < n; k++) y[k] = (float)(real_exp((double)y[k] - (double)most) / sum);
}

/* The largest that is below 'last', or equal and behind it; 'last' -1: of all. */
static int64_t next_best(const float *y, int64_t n, int64_t last) {
    int64_t best = -1;
    for (int64_t k = 0; k < n; k++) {
        bool later = last < 0 || y[k] < y[last] || (y[k] == y[last] && k > last);
        if (later && (best < 0 || y[k] > y[best])) best = k;
    }
    return best;
}

/* What a class is called, or the text of a token; NULL: it has its number alone. */
static const char *label_text(const struct asker *a, int64_t label, char text[9]) {
    memset(text, 0, 9);
    int n = dataset_decode(a->t->feed.data, (int32_t)label, text);
    bool part = n == 1 && (unsigned char)*text >= 0x80; /* of a character: no text by itself */
    return n > 0 && !part ? text : dataset_class_name(a->t->feed.data, label);
}

/* raw: the network's own outputs, of which y are the probabilities. */
static void answer_json(struct asker *a, const float *y, const float *raw, const char *input, int64_t i,
                        int64_t label) {
    struct json *j = &a->j;
    char text[9];
    json_open(j, NULL, '{');
    json_string(j, "input", input);
    json_int(j, "sample", i);
    if (label >= 0) json_int(j, "truth", label);
    json_open(j, a->classes ? "top" : "outputs", '[');
    int64_t shown = a->classes && a->o->top < a->width ? a->o->top : a->width, k = -1;
    for (int64_t n = 0; n < shown; n++) {
        k = a->classes ? next_best(y, a->width, k) : n;
        if (k < 0) break;
        if (!a->classes) {
            json_real(j, NULL, (double)y[k]);
            continue;
        }
        json_open(j, NULL, '{');
        json_int(j, "label", k);
        if (label_text(a, k, text)) json_string(j, "text", label_text(a, k, text));
        json_real(j, "probability", (double)y[k]);
        json_real(j, "logit", (double)raw[k]);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void print_label(const struct asker *a, int64_t label) {
    char memory[9], shown[256];
    const char *text = label_text(a, label, memory);
    printf("%lld", (long long)label);
    if (!text) return;
    snprintf(shown, sizeof shown, "%s", *text == '\n' ? "\\n" : text);
    printf(" '%s'", text_defuse(shown, ""));
}

static void answer_print(const struct asker *a, const float *y, const char *input, int64_t i, int64_t label) {
    int64_t shown = a->o->top < a->width ? a->o->top : a->width, k = -1;
    const char *colon = strncmp(input, "val:", 4) && strncmp(input, "train:", 6) ? NULL : strchr(input, ':');
    int n = colon ? (int)(colon - input) : (int)strlen(input);
    char source[4096];
    snprintf(source, sizeof source, "%.*s", n, input);
    printf("%s:%lld ", text_defuse(source, ""), (long long)i);
    for (int64_t m = 0; m < (a->classes ? shown : a->width); m++) {
        k = a->classes ? next_best(y, a->width, k) : m;
        if (k < 0) break;
        printf(m && a->classes ? "  |  " : " ");
        if (a->classes) print_label(a, k);
        printf(a->classes ? " %.2f %%" : "%.6g", (double)y[k] * (a->classes ? 100 : 1));
    }
    if (label >= 0) {
        printf("   (is ");
        print_label(a, label);
        printf("%s)", label == next_best(y, a->width, -1) ? "" : ": wrong");
    }
    printf("\n");
}

/* ---- batches ---- */

static enum error read_samples(struct asker *a, const struct input_range *r, int64_t from, int64_t n) {
    struct transform change;
    const struct dataset *d = r->set;
    TRY(transform_init(&change, d, &a->t->config->data, &a->t->feed.norm, false, 0));
    for (int64_t i = 0; i < n; i++) {
        TRY(d->ops->read(r->set, from + i, a->raw, a->labels + i * a->t->feed.data->labels, a->target));
        transform_apply(&change, d, a->raw, (uint64_t)(from + i), a->x + i * shape_count(&d->shape));
    }
    return ERR_NONE;
}

static enum error answer_batch(struct asker *a, const struct input_range *r, const char *input, int64_t from,
                               int64_t n) {
    struct trainer *t = a->t;
    const float *y;
    struct graph_batch batch = {.n = n, .x = a->x};
    TRY(read_samples(a, r, from, n));
    TRY(graph_prepare(t->graph, n, NULL));
    TRY(graph_forward(t->graph, &batch, t->arena.values, t->arena.buffers, NULL));
    TRY(graph_output(t->graph, &y));
    int64_t all = shape_count(&t->model->output), labels = t->feed.data->labels;
    float *row = a->target;
    for (int64_t i = 0; i < n; i++) {
        int64_t truth = r->own || !a->classes ? -1 : a->labels[(i + 1) * labels - 1];
        const float *raw = y + (i + 1) * all - a->width;
        memcpy(row, raw, (size_t)a->width * sizeof *row);
        if (a->classes && t->config->loss == LOSS_CROSS_ENTROPY) softmax(row, a->width);
        if (a->o->trained.json)
            answer_json(a, row, raw, input, from + i, truth);
        else
            answer_print(a, row, input, from + i, truth);
    }
    return ERR_NONE;
}

static enum error answer_input(struct asker *a, const char *input) {
    struct input_range r;
    TRY(find_input(a, input, &r));
    enum error err = ERR_NONE;
    for (int64_t i = r.from; i <= r.to && err == ERR_NONE; i += BATCH)
        err = answer_batch(a, &r, input, i, r.to - i + 1 < BATCH ? r.to - i + 1 : BATCH);
    if (r.own) dataset_close(r.set);
    return err;
}

/* ---- all ---- */

static enum error take_memory(struct asker *a) {
    const struct dataset *d = a->t->feed.data;
    a->classes = d->classes > 0;
    a->width = a->classes ? d->classes : d->targets;
    size_t labels = (size_t)(d->labels ? d->labels : 1);
    a->raw = malloc(dataset_sample_bytes(d));
    a->x = calloc((size_t)BATCH * (size_t)shape_count(&d->shape), sizeof *a->x);
    a->labels = calloc(BATCH * labels, sizeof *a->labels);
    a->target = calloc((size_t)(a->width + d->targets), sizeof *a->target);
    if (a->raw && a->x && a->labels && a->target) return ERR_NONE;
    return FAIL(ERR_MEMORY, "no memory for a batch of samples");
}

static enum error answer_all(struct asker *a) {
    const struct options *o = a->o;
    TRY(take_memory(a));
    json_open(&a->j, NULL, '[');
    for (int i = 0; i < o->inputs.count; i++) TRY(answer_input(a, o->inputs.of[i]));
    json_close(&a->j, ']');
    TRY(json_done(&a->j));
    if (o->trained.json) printf("%s\n", a->j.text);
    return fflush(stdout) == 0 ? ERR_NONE : FAIL(ERR_IO, "cannot write the predictions");
}

static int predict(struct options *o) {
    struct asker a = {.o = o};
    enum error err = cli_trained_ask(&o->trained, &a.t);
    if (err != ERR_NONE) return error_exit_code(err);
    json_init(&a.j);
    err = answer_all(&a);
    json_fini(&a.j);
    free(a.raw);
    free(a.x);
    free(a.labels);
    free(a.target);
    for (int i = 0; i < 2; i++) dataset_close(a.part[i]);
    trainer_unload(a.t);
    return cli_end(err);
}

static int run(const struct cli *cli) {
    struct options *o = cli->options;
    o->trained.pool = cli->pool;
    int code = predict(o);
    run_settings_free(&o->trained.settings);
    return code;
}

static const struct option options[] = {
    {TRAINED_PATH, .missing = "whose predictions? a run's or a configuration's"},
    {"INPUT", NULL,
     "val:0-9 or train:7, samples of its data by number; or a file of samples without labels: .npy "
     "or IDX arrays (samples first), of the shape and type of the training data; or a picture "
     "(.jpg, .png) for a network of square colour pictures",
     .at = AT(inputs), .many = OPTION_LIST, .missing = "of what? val:0-9, or a file of samples without labels"},
    {"--top", "K", "number of answers for each sample; default: 3", CONFIG_INT, AT(top), 1, TOP_MOST},
    TRAINED_OPTIONS,
    {"--json", NULL, "one JSON array on standard output; with the outputs before softmax (logit)", CONFIG_BOOL,
     AT(trained.json)},
    {0}};

const struct command command_predict = {
    .name = "predict",
    .summary = "predicts samples with a trained network",
    OPTIONS(options),
    .notes = "For a sequence, the prediction is what follows its end.\n"
             "Exit codes: 0; 64 usage; 65 bad data or checkpoint; 66 no such file, sample, run or\n"
             "checkpoint; 78 bad configuration, or weights of another model\n",
    .standard = &(const struct options){.top = 3},
    .run = run,
};
