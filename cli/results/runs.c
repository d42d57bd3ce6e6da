/* engine runs: all runs and experiments below a folder, as one table. */
#include "cli/results/runs.h"

#include "cli/line/cli.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/save/run_record.h"
#include "lab/draw/table.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct runs_options {
    const char *folder, *mode, *name, *tag, *untag, *note;
    int sort, state; /* state: -1 is any */
    bool reverse, all, json, csv;
};
#define OPTIONS_STRUCT struct runs_options

/* ---- columns ---- */

enum { CELL = 48 };
enum form { TEXT, TAGS, STATE, COUNT, STEPS, REAL, LOSS, SHARE, BEST, SECONDS };
enum whose { RUN = 1, EXPERIMENT = 2, BOTH = 3 };

/* One fact, wherever it is shown: in the table, in JSON, in CSV, as a key to sort by. */
static const struct column {
    const char *key, *head; /* head: in the table; NULL: it is not there */
    enum whose whose;
    enum form form;
    size_t at;
    int leaves; /* where the terminal is narrow, the largest ones are left out first; 0: never */
} columns[] = {
#define OF(member) offsetof(struct listed, member)
    {"name", "name", BOTH, TEXT, OF(name), 0},
    {"state", "state", BOTH, STATE, OF(state), 0},
    {"mode", "mode", RUN, TEXT, OF(mode), 3},
    {"devices", "dev", RUN, COUNT, OF(devices), 5},
    {"steps", "steps", RUN, STEPS, OF(steps), 4},
    {"planned_steps", NULL, RUN, COUNT, OF(planned), 0},
    {"loss", "loss", RUN, LOSS, OF(loss), 2},
    {"val_loss", "val loss", RUN, LOSS, OF(val_loss), 8},
    {"val_accuracy", "val acc", RUN, SHARE, OF(val_accuracy), 7},
    {"val_top5", NULL, RUN, REAL, OF(val_top5), 0},
    {"val_perplexity", NULL, RUN, REAL, OF(val_perplexity), 0},
    {"val_balanced_accuracy", NULL, RUN, REAL, OF(val_balanced_accuracy), 0},
    {"val_rmse", NULL, RUN, REAL, OF(val_rmse), 0},
    {"val_mae", NULL, RUN, REAL, OF(val_mae), 0},
    {"val_r2", "val R2", RUN, LOSS, OF(val_r2), 7},
    {"val_bits_per_byte", NULL, RUN, REAL, OF(val_bits_per_byte), 0},
    {"best", "best", RUN, BEST, OF(best), 1},
    {"best_step", NULL, RUN, COUNT, OF(best_step), 0},
    {"seconds", "time", RUN, SECONDS, OF(seconds), 6},
    {"samples_per_s", NULL, RUN, REAL, OF(samples_per_s), 0},
    {"when", "when", RUN, TEXT, OF(when), 9},
    {"run_id", NULL, RUN, TEXT, OF(run_id), 0},
    {"weights_sha256", NULL, RUN, TEXT, OF(weights), 0},
    {"verdict", NULL, EXPERIMENT, TEXT, OF(verdict), 0},
    {"runs_done", NULL, EXPERIMENT, COUNT, OF(done), 0},
    {"runs_wanted", NULL, EXPERIMENT, COUNT, OF(wanted), 0},
    {"tags", "tags", BOTH, TAGS, OF(remark.tags), 10},
    {"note", NULL, BOTH, TEXT, OF(remark.note), 0},
    {"reason", NULL, BOTH, TEXT, OF(reason), 0},
    {"id", NULL, BOTH, TEXT, OF(id), 0},
#undef OF
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static const char *runs_column_key(int i) {
    return i < COLUMNS ? columns[i].key : NULL;
}

static const char *runs_state_name(int i) {
    return i < RUN_STATES ? run_state_names[i] : NULL;
}

static bool runs_is_number(const struct column *c) {
    return c->form != TEXT && c->form != TAGS && c->form != STATE;
}

static const char *runs_text_at(const struct column *c, const struct listed *r) {
    const char *at = (const char *)r + c->at;
    if (c->form == STATE) return run_state_names[r->state];
    return c->at == offsetof(struct listed, id) ? at : *(const char *const *)(const void *)at;
}

/* NaN: it is not known. */
static double runs_number_at(const struct column *c, const struct listed *r) {
    const char *at = (const char *)r + c->at;
    if (c->form != COUNT && c->form != STEPS) return *(const double *)(const void *)at;
    int64_t n = *(const int64_t *)(const void *)at;
    return n < 0 ? (double)NAN : (double)n;
}

/* The column's number of a run, as the table shows it. */
static void runs_put_number(const struct column *c, const struct listed *r, char out[CELL]) {
    double v = runs_number_at(c, r);
    enum form form = c->form == BEST ? r->best_is_loss ? LOSS : SHARE : c->form;
    int n = snprintf(out, CELL, "-");
    if (!isfinite(v)) return;
    if (form == SHARE)
        snprintf(out, CELL, "%.2f %%", v * 100);
    else if (form == LOSS)
        snprintf(out, CELL, fabs(v) < 1e4 ? "%.4f" : "%.3g", v);
    else if (form == SECONDS)
        text_of_seconds(v, out);
    else
        n = snprintf(out, CELL, "%.0f", v);
    if (form == STEPS && r->planned > r->steps) snprintf(out + n, CELL - (size_t)n, "/%lld", (long long)r->planned);
}

static void runs_put_cell(const struct column *c, const struct listed *r, char out[CELL]) {
    if (runs_is_number(c))
        runs_put_number(c, r, out);
    else
        snprintf(out, CELL, "%s", *runs_text_at(c, r) ? runs_text_at(c, r) : "-");
    if (c->at == offsetof(struct listed, when) && strlen(out) > 16) out[10] = ' ', out[16] = '\0';
}

/* ---- for programs ---- */

/* One object with all that is known of a run or an experiment. */
static void runs_json_row(const struct listed *r, struct json *j) {
    json_open(j, NULL, '{');
    for (int i = 0; i < COLUMNS; i++) {
        const struct column *c = &columns[i];
        if (!(c->whose & (r->experiment ? EXPERIMENT : RUN))) continue;
        double v = runs_is_number(c) ? runs_number_at(c, r) : 0;
        if (c->form == TAGS)
            remark_put_tags(&r->remark, j);
        else if (!runs_is_number(c))
            json_string(j, c->key, *runs_text_at(c, r) ? runs_text_at(c, r) : NULL);
        else if (isfinite(v) && (c->form == COUNT || c->form == STEPS))
            json_int(j, c->key, (int64_t)v);
        else
            json_real(j, c->key, v);
    }
    if (!r->experiment) json_string(j, "best_of", isnan(r->best) ? NULL : r->best_is_loss ? "loss" : "accuracy");
    json_close(j, '}');
}

enum error runs_json(const char *folder, const struct listing *all, int64_t since, struct json *j) {
    char *shown = strdup(folder); /* JSON is UTF-8, which names of folders need not be */
    if (!shown) return FAIL(ERR_MEMORY, "no memory for a table");
    json_open(j, NULL, '{');
    json_string(j, "folder", text_defuse(shown, ""));
    free(shown);
    if (since) json_int(j, "since", since);
    for (int experiments = 0; experiments < 2; experiments++) {
        json_array(j, experiments ? "experiments" : "runs", i, all->count)
            if (all->of[i].experiment == experiments && (!since || all->of[i].changed > since))
                runs_json_row(&all->of[i], j);
    }
    json_close(j, '}');
    return json_done(j);
}

static enum error runs_print_json(const char *folder, const struct listing *all) {
    struct json j = {0};
    return cli_json(runs_json(folder, all, 0, &j), &j, stdout);
}

static enum error runs_csv_cell(const struct column *c, const struct listed *r, struct pool *pool, const char **out) {
    *out = "";
    if (!(c->whose & (r->experiment ? EXPERIMENT : RUN))) return ERR_NONE;
    if (!runs_is_number(c))
        *out = runs_text_at(c, r);
    else if (isfinite(runs_number_at(c, r)))
        *out = pool_printf(pool, "%.9g", runs_number_at(c, r));
    return *out ? ERR_NONE : ERR_MEMORY;
}

static enum error runs_csv_fill(struct table *t, const struct listing *all, struct pool *pool) {
    for (int c = 0; c < COLUMNS; c++) table_row(t, 0)[c] = columns[c].key;
    for (int i = 0; i < all->count; i++)
        for (int c = 0; c < COLUMNS; c++) TRY(runs_csv_cell(&columns[c], &all->of[i], pool, &table_row(t, i + 1)[c]));
    return ERR_NONE;
}

static enum error runs_print_csv(const struct listing *all, struct pool *pool) {
    struct table t;
    TRY(table_init(&t, "runs", COLUMNS, all->count, pool));
    TRY(runs_csv_fill(&t, all, pool));
    table_csv(&t, stdout);
    return ERR_NONE;
}

/* ---- for people ---- */

/* Bytes of the text's first characters. */
static int runs_text_bytes_of(const char *text, int characters) {
    int n = 0;
    for (; text[n] && (characters > 0 || ((unsigned char)text[n] & 0xC0) == 0x80); n++)
        characters -= ((unsigned char)text[n + 1] & 0xC0) != 0x80;
    return n;
}

/* A name that is too long is cut in its middle: its end has the time. */
static void runs_print_name(const char *name, int room) {
    int width = text_columns(name), end = (room - 1) / 2, begin = room - 1 - end;
    if (width <= room)
        printf("%s%*s", name, room - width, "");
    else
        printf("%.*s~%s", runs_text_bytes_of(name, begin), name, name + runs_text_bytes_of(name, width - end));
}

struct widths {
    int width[COLUMNS]; /* 0: left out, or of no run */
    int left_out;       /* that hold something */
};

/* The width of the column's widest text; 0 where all are empty. */
static int column_width(const struct column *c, const struct listing *all) {
    char cell[CELL];
    int width = 0;
    for (int i = 0; i < all->count && c->head; i++) {
        if (all->of[i].experiment) continue;
        runs_put_cell(c, &all->of[i], cell);
        int n = c->at == offsetof(struct listed, name) ? text_columns(all->of[i].name) : (int)strlen(cell);
        if (strcmp(cell, "-") != 0 && n > width) width = n;
    }
    return width == 0 ? 0 : width < (int)strlen(c->head) ? (int)strlen(c->head) : width;
}

static int widths_total(const struct widths *l) {
    int sum = -2;
    for (int c = 0; c < COLUMNS; c++) sum += l->width[c] ? l->width[c] + 2 : 0;
    return sum;
}

/* terminal: its columns; 0: there is room for all. */
static struct widths widths_choose(const struct listing *all, int terminal) {
    enum { NAME_LEAST = 18 };
    struct widths l = {0};
    for (int c = 0; c < COLUMNS; c++) l.width[c] = column_width(&columns[c], all);
    if (terminal <= 0) return l;
    int name = l.width[0];
    if (name > NAME_LEAST) l.width[0] = NAME_LEAST;
    while (widths_total(&l) > terminal) {
        int out = -1;
        for (int c = 0; c < COLUMNS; c++)
            if (l.width[c] && columns[c].leaves && (out < 0 || columns[c].leaves > columns[out].leaves)) out = c;
        if (out < 0) break;
        l.width[out] = 0;
        l.left_out++;
    }
    int free = terminal - widths_total(&l), more = name - l.width[0];
    l.width[0] += free < 0 ? 0 : free < more ? free : more;
    return l;
}

static void runs_print_row(const struct widths *l, const struct listed *r) {
    char cell[CELL];
    runs_print_name(r ? r->name : columns[0].head, l->width[0]);
    for (int c = 1; c < COLUMNS; c++) {
        if (!l->width[c]) continue;
        snprintf(cell, sizeof cell, "%s", columns[c].head);
        if (r) runs_put_cell(&columns[c], r, cell);
        printf(runs_is_number(&columns[c]) ? "  %*s" : "  %-*s", l->width[c], cell);
    }
    printf("\n");
}

static int listing_count(const struct listing *all, bool experiments) {
    int n = 0;
    for (int i = 0; i < all->count; i++) n += all->of[i].experiment == experiments;
    return n;
}

static void print_runs(const struct listing *all, int terminal) {
    struct widths l = widths_choose(all, terminal);
    if (!listing_count(all, false)) return;
    runs_print_row(&l, NULL);
    for (int i = 0; i < all->count; i++)
        if (!all->of[i].experiment) runs_print_row(&l, &all->of[i]);
    if (l.left_out) printf("%d columns left out: see --csv, --json\n", l.left_out);
}

static void runs_print_experiment(const struct listed *r, int room) {
    char runs[64] = "-";
    runs_print_name(r->name, room);
    if (r->done >= 0) snprintf(runs, sizeof runs, "%lld runs", (long long)r->done);
    if (r->wanted >= 0) snprintf(runs, sizeof runs, "%lld of %lld runs", (long long)r->done, (long long)r->wanted);
    printf("  %-10s  %s%s%s\n", run_state_names[r->state], runs, *r->remark.tags ? "  " : "", r->remark.tags);
    if (!*r->verdict) return;
    printf("  ");
    help_wrap(r->verdict, 2, 2);
}

static void runs_print_experiments(const struct listing *all, int terminal) {
    enum { BESIDE = 32 }; /* state and runs */
    int room = (int)strlen("experiment");
    if (!listing_count(all, true)) return;
    for (int i = 0; i < all->count; i++)
        if (all->of[i].experiment && text_columns(all->of[i].name) > room) room = text_columns(all->of[i].name);
    if (terminal > 0 && room + BESIDE > terminal) room = terminal > BESIDE + 10 ? terminal - BESIDE : 10;
    printf("%s%-*s  %-10s  runs\n", listing_count(all, false) ? "\n" : "", room, "experiment", "state");
    for (int i = 0; i < all->count; i++)
        if (all->of[i].experiment) runs_print_experiment(&all->of[i], room);
}

/* Prints below the table what has no room in it: the note of each run, and why it has failed or cannot be read. */
static void runs_print_words(const struct listing *all) {
    bool any = false;
    for (int i = 0; i < all->count; i++) {
        const struct listed *r = &all->of[i];
        bool wrong = r->state == RUN_FAILED || r->state == RUN_UNREADABLE;
        const char *words[] = {r->remark.note, wrong ? r->reason : ""};
        for (int k = 0; k < 2; k++) {
            if (!*words[k]) continue;
            if (!any) printf("\n");
            any = true;
            int n = printf("%s:", r->name);
            help_wrap(words[k], n, 2);
        }
    }
}

static void runs_print_table(const struct runs_options *o, const struct listing *all, int left_out) {
    int terminal = file_columns(STDOUT_FILENO);
    if (!all->count && !left_out) printf("no runs below '%s'\n", o->folder);
    if (!all->count && left_out) printf("none of the %d below '%s' is such a run\n", left_out, o->folder);
    print_runs(all, terminal);
    runs_print_experiments(all, terminal);
    runs_print_words(all);
}

/* ---- which, and in which order ---- */

static bool listed_wanted(const struct runs_options *o, const struct listed *r) {
    if (o->mode && strcmp(o->mode, r->mode) != 0) return false;
    if (o->state >= 0 && (int)r->state != o->state) return false;
    if (o->tag && !remark_has_tag(&r->remark, o->tag)) return false;
    return !o->name || fnmatch(o->name, r->name, 0) == 0;
}

/* Keeps those that are wanted; how many it has left out. */
static int listing_filter(const struct runs_options *o, struct listing *all) {
    int n = 0, count = all->count;
    for (int i = 0; i < count; i++)
        if (listed_wanted(o, &all->of[i])) all->of[n++] = all->of[i];
    all->count = n;
    return count - n;
}

static bool listed_known(const struct column *c, const struct listed *r) {
    return runs_is_number(c) ? !isnan(runs_number_at(c, r)) : *runs_text_at(c, r) != '\0';
}

/* Compares two runs by the column of --sort: unknown values come last in either order, and equal ones are in the order of names. */
static int listed_order(const void *a, const void *b, void *user) {
    const struct runs_options *o = user;
    const struct column *c = &columns[o->sort];
    const struct listed *x = a, *y = b;
    bool first = listed_known(c, x), second = listed_known(c, y);
    if (first != second) return first ? -1 : 1;
    int order = !first ? 0
                : runs_is_number(c)
                    ? (runs_number_at(c, x) > runs_number_at(c, y)) - (runs_number_at(c, x) < runs_number_at(c, y))
                : c->form == STATE ? (int)x->state - (int)y->state
                                   : strcmp(runs_text_at(c, x), runs_text_at(c, y));
    if (order == 0) return strcmp(x->name, y->name);
    return o->reverse ? -order : order;
}

/* ---- notes and tags ---- */

static enum error runs_change_remark(const struct runs_options *o, struct pool *pool, struct remark *out) {
    const char *run_id = run_record_read(o->folder, pool).run_id;
    if (!runs_is_any(o->folder))
        return FAIL(ERR_INPUT,
                    "'%s' is not the folder of a run or of an experiment\n"
                    "engine runs --note 'TEXT' runs/NAME",
                    o->folder);
    TRY(remark_read(o->folder, run_id, pool, out));
    if (o->note) TRY(remark_set_note(out, o->note, pool));
    if (o->tag) TRY(remark_add_tag(out, o->tag, pool));
    if (o->untag) TRY(remark_remove_tag(out, o->untag, pool));
    return remark_save(o->folder, run_id, out, pool);
}

static int runs_remark(const struct cli *cli) {
    const struct runs_options *o = cli->options;
    struct remark r;
    if (o->mode || o->name || o->state >= 0 || o->sort || o->reverse || o->all || o->json || o->csv)
        return cli_usage(cli, "--note, --tag and --untag change one run, and take no options of the list");
    enum error err = runs_change_remark(o, cli->pool, &r);
    if (err != ERR_NONE) return cli_fail(err);
    printf("tags: %s\nnote: %s\n", *r.tags ? r.tags : "-", *r.note ? r.note : "-");
    return 0;
}

static int runs_command(const struct cli *cli) {
    struct runs_options *o = cli->options;
    struct listing all;
    if (o->note || o->untag || (o->tag && runs_is_any(o->folder))) return runs_remark(cli);
    if (o->json && o->csv) return cli_usage(cli, "--json and --csv are two forms");
    enum error err = runs_list(o->folder, o->all, cli->pool, &all);
    if (err != ERR_NONE) return cli_fail(err);
    int left_out = listing_filter(o, &all);
    if (all.count) qsort_r(all.of, (size_t)all.count, sizeof *all.of, listed_order, o);
    if (o->json) return cli_end(runs_print_json(o->folder, &all));
    if (o->csv) return cli_end(runs_print_csv(&all, cli->pool));
    runs_print_table(o, &all, left_out);
    return 0;
}

static const struct option options[] = {
    {"FOLDER | RUN", NULL,
     "the folder to search, with all folders below it; default: runs/. RUN: one run or experiment", CONFIG_STRING,
     AT(folder), .one = "folder"},
    {"--all", NULL, "also lists the runs of experiments", CONFIG_BOOL, AT(all)},
    {"--mode", "M", "lists only the runs of this mode", CONFIG_STRING, AT(mode)},
    {"--state", "S", "lists only the runs in this state", CONFIG_ENUM, AT(state), .word = runs_state_name},
    {"--name", "PATTERN", "lists only runs whose name matches: --name 'mlp-*'", CONFIG_STRING, AT(name)},
    {"--tag", "TAG", "lists only what has this tag; with a RUN instead of the folder it gives the run this tag",
     CONFIG_STRING, AT(tag)},
    {"--untag", "TAG", "removes a tag from a RUN", CONFIG_STRING, AT(untag)},
    {"--note", "TEXT", "writes a note beside a RUN, or removes it where the text is ''", CONFIG_STRING, AT(note)},
    {"--sort", "KEY", "sorts by this column; default: by name. Unknown values come last", CONFIG_ENUM, AT(sort),
     .word = runs_column_key},
    {"--reverse", NULL, "reverses the order: largest or newest first", CONFIG_BOOL, AT(reverse), .also = "-r"},
    OPTION_JSON("one JSON object on standard output, with all that is known"),
    {"--csv", NULL, "the same as CSV; the first column is a title", CONFIG_BOOL, AT(csv)},
    {0}};

const struct command command_runs = {
    .name = "runs",
    .also = "list|ls|history|status",
    .summary = "lists the runs and experiments below a folder, with their states and results",
    OPTIONS(options),
    .notes = "The states of a run: running (a process of this host works in the folder), finished and\n"
             "stopped (its metrics and its summary agree on that), failed (run.json has the reason),\n"
             "unfinished (none of these: it was killed, or it runs on another host), unreadable (a file\n"
             "is damaged or missing).\n"
             "A note and tags are in note.json of the run's folder, and name the run: a new run there has none.\n"
             "Exit codes: 0, even if there are no runs; 64 usage; 65 note.json is damaged; 66 no such folder or\n"
             "run; 73, 74 note.json cannot be written\n",
    .standard = &(const struct runs_options){.folder = "runs", .state = -1},
    .run = runs_command,
};
