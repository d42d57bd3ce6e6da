/* engine inspect: what is in a checkpoint, a safetensors file or a run directory, and where the ranks of groups are.
 * Checks all it shows. */
#include "cli/use/inspect.h"

#include "cli/line/cli.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/save/checkpoint.h"
#include "engine/tell/trace.h"
#include "transport/flight/recorder.h"
#include "transport/link/link.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct inspect_options {
    const char *path;
    bool json, trace;
};
#define OPTIONS_STRUCT struct inspect_options

/* ---- one file ---- */
static void inspect_tensor_stats(const struct st_tensor *t, const void *data, char out[96]) {
    out[0] = '\0';
    if (strcmp(t->dtype, "F32") || t->bytes == 0) return;
    const float *v = data;
    size_t n = t->bytes / sizeof *v, odd = 0;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) odd++;
        sum += (double)v[i], squares += (double)v[i] * (double)v[i];
    }
    double mean = sum / (double)n;
    int used = snprintf(out, 96, "mean %9.2e  deviation %8.2e", mean, sqrt(fmax(0, squares / (double)n - mean * mean)));
    if (odd) snprintf(out + used, 96 - (size_t)used, "  %zu NOT FINITE", odd);
}

/* Where what is found goes: standard output for people, or one JSON object. */
struct inspect_shown {
    struct pool *pool;
    struct json j;
    bool json;
};

static void inspect_print_tensor(const struct st_tensor *t, const void *data) {
    char shape[128], stats[96];
    inspect_tensor_stats(t, data, stats);
    printf("  %-28s %-4s %-14s %s\n", t->name, t->dtype, st_shape_text(t, shape), stats);
}

static void inspect_tensor_json(const struct st_tensor *t, struct json *j) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("name", t->name), JSON_TEXT("dtype", t->dtype));
    json_ints(j, "shape", t->dim, t->ndim);
    json_close(j, '}');
}

static enum error inspect_show_tensor(struct inspect_shown *s, const struct st_file *f, const struct st_tensor *t) {
    void *data;
    TRY(memory_alloc(t->bytes, &data));
    enum error err = st_read(f, t, data);
    if (err == ERR_NONE && s->json)
        inspect_tensor_json(t, &s->j);
    else if (err == ERR_NONE)
        inspect_print_tensor(t, data);
    memory_free(data);
    return err;
}

/* Shows the data on which the network was trained, if the file describes them. */
static enum error inspect_show_preprocessing(struct inspect_shown *s, const struct st_file *f) {
    const char *text = json_get_text(f->metadata, "preprocessing");
    struct preprocessing *p;
    if (!text) return ERR_NONE;
    TRY(preprocessing_parse(text, f->path, s->pool, &p));
    if (s->json)
        json_raw(&s->j, "preprocessing", text);
    else
        inspect_preprocessing(p);
    return ERR_NONE;
}

static enum error inspect_show_tensors(struct inspect_shown *s, const struct st_file *f) {
    char bytes[32];
    json_string(&s->j, "file", f->path);
    json_int(&s->j, "bytes", (int64_t)f->data_bytes);
    if (!s->json) printf("%s: %d tensors, %s\n", f->path, f->count, text_of_bytes((double)f->data_bytes, bytes));
    TRY(inspect_show_preprocessing(s, f));
    json_array(&s->j, "tensors", i, f->count) TRY(inspect_show_tensor(s, f, &f->tensors[i]));
    return ERR_NONE;
}

static enum error inspect_show_file(struct inspect_shown *s, const char *path) {
    struct st_file f;
    TRY(st_open(path, &f));
    json_open(&s->j, NULL, '{');
    enum error err = inspect_show_tensors(s, &f);
    json_close(&s->j, '}');
    st_close(&f);
    return err;
}

/* ---- folders ---- */
static const struct json_limits limits = {.depth = 8, .entries = 1 << 20, .text = 16 << 20};

static void inspect_print_text(const char *text) {
    char *copy = strdup(text);
    if (copy) printf("%s", text_defuse(copy, "\n"));
    free(copy);
}

static void inspect_print_json(const struct json_value *v, int indent) {
    if (v->key && !strcmp(v->key, "preprocessing")) return; /* shown with the model's file */
    if (v->key) {
        printf("%*s", indent, "");
        inspect_print_text(v->key);
        printf(": ");
    }
    if (v->kind == JSON_STRING || v->kind == JSON_NUMBER) {
        inspect_print_text(v->text);
        printf("\n");
    } else if (v->kind == JSON_BOOL || v->kind == JSON_NULL)
        printf("%s\n", v->kind == JSON_NULL ? "none" : v->truth ? "yes" : "no");
    else if (v->kind == JSON_ARRAY) {
        for (int i = 0; i < v->count && v->children[i].kind == JSON_NUMBER; i++) printf("%s ", v->children[i].text);
        printf("\n");
    } else {
        if (v->key) printf("\n");
        for (int i = 0; i < v->count; i++) inspect_print_json(&v->children[i], indent + (v->key ? 2 : 0));
    }
}

/* The file's object: printed, or a member of ours. */
static enum error inspect_show_object(struct inspect_shown *s, const char *dir, const char *name, const char *key) {
    const struct json_value *v;
    char *text, *path = pool_printf(s->pool, "%s/%s", dir, name);
    size_t n;
    TRY(file_read(path, 16 << 20, s->pool, &text, &n));
    enum error err = json_parse(text, n, limits, s->pool, &v);
    if (err != ERR_NONE) return error_prefix(err, "%s: ", path);
    if (s->json)
        json_raw(&s->j, key, text);
    else
        inspect_print_json(v, 0);
    return ERR_NONE;
}

static enum error inspect_show_checkpoint(struct inspect_shown *s, const char *dir) {
    static const char *const files[] = {"model.safetensors", "optim.safetensors", "state.safetensors",
                                        "ema.safetensors"};
    json_string(&s->j, "checkpoint", dir);
    if (!s->json) printf("checkpoint %s\n", dir);
    TRY(inspect_show_object(s, dir, "manifest.json", "manifest"));
    json_open(&s->j, "files", '[');
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = pool_printf(s->pool, "%s/%s", dir, files[i]);
        if (!path) return ERR_MEMORY;
        if (i == sizeof files / sizeof *files - 1 && !file_exists(path)) continue;
        TRY(inspect_show_file(s, path));
    }
    json_close(&s->j, ']');
    return ERR_NONE;
}

/* Prints where the ranks were, from what their flight recorders left; nothing when there are none. */
static enum error inspect_show_flight(const char *dir, struct pool *pool) {
    struct recording *ranks = NULL, one;
    int n = 0;
    for (int r = 0; r < (ranks ? ranks->size : RANKS_MOST); r++) {
        const char *path = pool_printf(pool, "%s/flight/rank%d.bin", dir, r);
        if (!path) return ERR_MEMORY;
        if (!file_exists(path)) continue;
        enum error err = recording_read(path, pool, &one);
        if (!err && !ranks && !(ranks = pool_alloc(pool, (size_t)one.size * sizeof *ranks))) err = ERR_MEMORY;
        if (err == ERR_MEMORY) return err;
        if (err == ERR_NONE)
            ranks[n++] = one;
        else
            printf("flight recorder: %s\n", error_message());
    }
    if (n == 0) return ERR_NONE;
    char *text;
    TRY(recording_merge(ranks, n, true, pool, &text));
    fputs(text, stdout);
    return ERR_NONE;
}

static enum error inspect_show_run(struct inspect_shown *s, const char *dir) {
    char *path = pool_printf(s->pool, "%s/summary.json", dir), *checkpoint = NULL;
    if (!path) return ERR_MEMORY;
    json_string(&s->j, "run", dir);
    if (!s->json) printf("run %s\n", dir);
    if (file_exists(path))
        TRY(inspect_show_object(s, dir, "summary.json", "summary"));
    else if (!s->json)
        printf("not finished: no summary.json\n");
    enum error err = checkpoint_find(dir, NULL, s->pool, &checkpoint);
    if (err == ERR_MEMORY) return err;
    json_string(&s->j, "newest_checkpoint", err == ERR_NONE ? checkpoint : NULL);
    struct checkpoint_place best = {NULL, -1};
    if (err == ERR_NONE) TRY(checkpoint_best(dir, NULL, s->pool, &best));
    json_string(&s->j, "best_checkpoint", best.path);
    if (s->json) return ERR_NONE;
    if (best.path) printf("best checkpoint: %s, after step %lld\n", best.path, (long long)best.step);
    if (err == ERR_NONE)
        printf("newest checkpoint: %s (engine inspect shows what is in it)\n", checkpoint);
    else
        printf("no checkpoint\n");
    return inspect_show_flight(dir, s->pool);
}

/* Merges the traces that the ranks have left, also those of a run that did not reach its end. */
static enum error inspect_merge_trace(const char *dir, struct pool *pool) {
    struct trace_rank *ranks;
    int n;
    TRY(trace_read_all(dir, pool, &ranks, &n));
    if (n == 0)
        return FAIL(ERR_INPUT,
                    "'%s' has no trace\n--set log.trace=10..20st records one; each rank writes it after the last of "
                    "these steps, or when the run ends",
                    dir);
    const char *path = pool_printf(pool, "%s/trace.json", dir);
    if (!path) return ERR_MEMORY;
    TRY(trace_merge(ranks, n, pool, path));
    printf("%s: steps %lld to %lld of %d rank%s", path, (long long)ranks->first, (long long)ranks->last, n,
           n == 1 ? "" : "s");
    if (n < ranks->size) printf(" of %d: the others left no trace here", ranks->size);
    printf("\n");
    return ERR_NONE;
}

static enum error inspect_show_folder(struct inspect_shown *s, const char *path) {
    char *manifest = pool_printf(s->pool, "%s/manifest.json", path),
         *resolved = pool_printf(s->pool, "%s/resolved.yaml", path);
    if (!manifest || !resolved) return ERR_MEMORY;
    bool checkpoint = file_exists(manifest);
    if (!checkpoint && !file_exists(resolved))
        return FAIL(ERR_INPUT, "'%s' is neither a checkpoint nor a run directory", path);
    json_open(&s->j, NULL, '{');
    TRY(checkpoint ? inspect_show_checkpoint(s, path) : inspect_show_run(s, path));
    json_close(&s->j, '}');
    return ERR_NONE;
}

static enum error inspect_path(const char *path, bool json, struct pool *pool) {
    struct stat st;
    struct inspect_shown s = {.pool = pool, .json = json};
    bool groups = !path || stat(path, &st) != 0;
    enum error err = groups                ? inspect_groups(path, json ? &s.j : NULL, pool)
                     : S_ISDIR(st.st_mode) ? inspect_show_folder(&s, path)
                                           : inspect_show_file(&s, path);
    if (json) return cli_json(err, &s.j, stdout);
    json_fini(&s.j);
    return err;
}

static int inspect_command(const struct cli *cli) {
    const struct inspect_options *o = cli->options;
    if (o->trace && !o->path) return cli_usage(cli, "--trace needs a run directory");
    if (o->trace && o->json) return cli_usage(cli, "--trace writes a file, and no --json");
    enum error err = o->trace ? inspect_merge_trace(o->path, cli->pool) : inspect_path(o->path, o->json, cli->pool);
    return cli_end(err);
}

static const struct option options[] = {
    {"PATH|PID|GROUP", NULL,
     "a file or folder; or a process, or the name of a group: in which call each of its ranks is, since when, and who "
     "has not come. Without it: all groups of programs on this host",
     CONFIG_STRING, AT(path), .one = "path"},
    OPTION_JSON("one JSON object on standard output"),
    {"--trace", NULL,
     "merges the traces of a run's ranks (log.trace) into RUN_DIR/trace.json, for a run that lost ranks; other runs do "
     "this at their end",
     CONFIG_BOOL, AT(trace)},
    {0}};

const struct command command_inspect = {
    .name = "inspect",
    .summary = "shows and checks a checkpoint, a safetensors file or a run directory; or where the ranks of a hung "
               "program are",
    OPTIONS(options),
    .run = inspect_command,
};
