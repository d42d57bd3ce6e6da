#include "lab/runner/runner.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/train/stop.h"
#include "lab/predict/link_fit.h"
#include "lab/runner/impl.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { NOTE_MOST = 4096, LOG_SHOWN = 2000, AGAIN_MOST = 2, SYNC_SECONDS = 10 };
static const struct json_limits note_limits = {3, 16 + TUNE_PARTS, 256};

char *runner_run_path(const struct runner_state *s, int cell, int repeat, const char *end) {
    return pool_printf(s->pool, "%s/cells/%s/run-%02d%s", s->r->folder, s->x->cell[cell].name, repeat + 1, end);
}

/* ---- what was run before ---- */

/* What is noted of a run when it has ended. */
struct run_note {
    int again;
    double foreign, seconds;
};

/* The first of a run's scores, one for each part of a search. */
static double *runner_scores(const struct runner_state *s, int cell, int repeat) {
    return s->part->score + (cell * s->most + repeat) * TUNE_PARTS;
}

static enum error runner_write_note(const struct runner_state *s, int cell, int repeat, const struct run_note *n) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_string(&j, "digest", s->x->cell[cell].digest);
    if (s->x->nseeds) json_int(&j, "seed", s->x->seeds[repeat]);
    if (n->again) json_int(&j, "again", n->again);
    json_put(&j, JSON_REAL("foreign_cores", n->foreign), JSON_REAL("seconds", n->seconds));
    if (s->part) json_reals(&j, "scores", runner_scores(s, cell, repeat), s->part->at + 1);
    json_close(&j, '}');
    return json_save(&j, ERR_NONE, runner_run_path(s, cell, repeat, "/compare.json"));
}

/* Takes the scores of the parts up to this one; false: it has not made this one. */
static bool runner_take_scores(struct runner_state *s, int cell, int repeat, const struct json_value *note) {
    const struct json_value *scores = json_member(note, "scores", JSON_ARRAY);
    if (!scores || scores->count <= s->part->at) return false;
    for (int i = 0; i <= s->part->at; i++) {
        const struct json_value *v = &scores->children[i];
        runner_scores(s, cell, repeat)[i] = v->kind == JSON_NUMBER ? v->number : INFINITY;
    }
    return true;
}

/* Takes a finished run; anything else about its directory means that it is not. */
static bool runner_take(struct runner_state *s, int cell, int repeat) {
    const struct json_value *root;
    char *path = runner_run_path(s, cell, repeat, "/compare.json"), *dir = runner_run_path(s, cell, repeat, "");
    int64_t again;
    struct compared_run *run = &s->out->cell[cell].run[repeat];
    if (!path || !dir || !file_exists(path)) return false;
    if (json_read(path, NOTE_MOST, note_limits, s->pool, &root) != ERR_NONE ||
        strcmp(json_text(root, "digest"), s->x->cell[cell].digest) != 0 ||
        (s->x->nseeds && json_number(root, "seed") != (double)s->x->seeds[repeat]))
        return false;
    if (s->part ? !runner_take_scores(s, cell, repeat, root)
                : run_result_read(dir, s->pool, &run->result) != ERR_NONE || !run_result_ended(&run->result))
        return false;
    run->dir = dir + strlen(s->r->folder) + 1;
    run->repeat = repeat;
    run->again = json_get_int(root, "again", AGAIN_MOST, &again) ? (int)again : 0;
    run->foreign = json_number(root, "foreign_cores");
    s->seconds[cell * s->most + repeat] = json_number(root, "seconds");
    return s->done[cell * s->most + repeat] = true;
}

/* ---- what others do meanwhile ---- */

/* Seconds that all processors together were busy since the start of the machine. */
static double runner_busy_seconds(void) {
    double v[8] = {0};
    FILE *f = fopen("/proc/stat", "re");
    int n = f ? fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7])
              : 0;
    if (f) fclose(f);
    if (n < 4) return (double)NAN;
    return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / (double)sysconf(_SC_CLK_TCK);
}

static double runner_seconds_used(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

/* ---- one run ---- */

/* Shows the end of what its processes have said; of a command that has said nothing, of what it has printed. Gives a hint that
 * names the file. */
static const char *runner_show_last_words(const struct runner_state *s, const struct one_run *r, int which) {
    const char *paths[] = {one_run_log(r, which), pool_printf(s->pool, "%s/output.txt", r->dir)};
    char *text = NULL, *rest = NULL;
    size_t n = 0;
    int i = -1;
    while (n == 0 && ++i < 2)
        if (!paths[i] || !file_exists(paths[i]) || file_read(paths[i], 1 << 24, s->pool, &text, &n) != ERR_NONE) n = 0;
    if (n == 0) return "it has said nothing";
    char *from = n > LOG_SHOWN ? strchr(text + n - LOG_SHOWN, '\n') : NULL;
    for (char *line = strtok_r(from ? from : text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        fprintf(stderr, "  | %s\n", text_defuse(line, "\t"));
    return pool_printf(s->pool, "this is the end of %s", paths[i]);
}

/* The error that ended a process with this exit code. A command's own code means nothing to us. */
static enum error runner_error_of(const struct one_run *r, int code) {
    bool others = r->cell->start.command || r->cell->start.under || r->cell->start.nhosts;
    enum error own = r->cell->start.command ? ERR_BUG : process_error(code);
    return own == ERR_BUG && others ? ERR_RESULT : own;
}

static enum error runner_failure(const struct runner_state *s, const struct one_run *r, const struct process_end *end) {
    const char *words = runner_show_last_words(s, r, end->which),
               *host = r->cell->start.nhosts ? r->cell->start.hosts[end->which] : "";
    if (end->late)
        return FAIL(ERR_TIMEOUT, "'%s', run %d: did not finish within %g s (timeout), and was ended\n%s",
                    r->cell->label, r->repeat + 1, s->x->timeout, words);
    return FAIL(runner_error_of(r, end->code), "'%s', run %d%s%s: exit code %d\n%s", r->cell->label, r->repeat + 1,
                *host ? ", host " : "", host, end->code, words);
}

/* Cores that others kept busy; not known where a launcher's ranks are no children of ours. */
static double runner_foreign_cores(const struct one_run *r, double busy, const struct process_end *end,
                                   double seconds) {
    if (r->cell->start.under || r->cell->start.nhosts) return (double)NAN;
    return fmax((busy - runner_seconds_used(&end->used)) / seconds, 0);
}

static enum error runner_try_once(const struct one_run *r, struct run_note *note, struct process_end *end) {
    if (!r->goes_on) TRY(one_run_remove(r));
    double busy = runner_busy_seconds();
    int64_t began = clock_ns();
    *end = (struct process_end){0};
    TRY(one_run(r, end));
    note->seconds = clock_seconds(clock_ns() - began);
    note->foreign = runner_foreign_cores(r, runner_busy_seconds() - busy, end, note->seconds);
    return ERR_NONE;
}

/* Whether the run's own words are that its training diverged: in a search that is a result, and the worst one. */
static bool runner_diverged(const struct runner_state *s, const struct one_run *r, const struct process_end *end) {
    char *text, *path = one_run_log(r, end->which);
    size_t n;
    if (!s->part || r->cell->start.command || end->late || end->code != error_exit_code(ERR_RESULT) || !path)
        return false;
    return file_read(path, 1 << 24, s->pool, &text, &n) == ERR_NONE && strstr(text, "diverged: the loss of step");
}

/* The score of a run that has made a part of a search. */
static enum error runner_score(const struct runner_state *s, int cell, int repeat, bool diverged) {
    const struct measure *m = &s->x->measure[0];
    struct run_result *result = &s->out->cell[cell].run[repeat].result;
    double v = INFINITY;
    if (!diverged) {
        TRY(run_result_read(runner_run_path(s, cell, repeat, ""), s->pool, result));
        v = measure_of(m, result, s->x->warmup);
    }
    for (int i = s->part->at; i < (diverged ? TUNE_PARTS : s->part->at + 1); i++)
        runner_scores(s, cell, repeat)[i] = isfinite(v) ? v : INFINITY;
    return ERR_NONE;
}

/* "2ep", "25st": where a part of a training ends; NULL: at its end, or there is no memory. */
static const char *runner_stop(const struct runner_state *s, int cell) {
    const struct config_span *length = &s->x->cell[cell].settings.config.train.length;
    if (!s->part || s->part->until >= 1) return NULL;
    double at = length->value * s->part->until;
    return length->unit == SPAN_STEPS ? pool_printf(s->pool, "%.0fst", ceil(at)) : pool_printf(s->pool, "%.9gep", at);
}

static enum error runner_run_one(struct runner_state *s, int cell, int repeat) {
    const struct one_run r = {.x = s->x,
                              .cell = &s->x->cell[cell],
                              .repeat = repeat,
                              .program = s->r->program,
                              .config =
                                  pool_printf(s->pool, "%s/cells/%s/config.yaml", s->r->folder, s->x->cell[cell].name),
                              .dir = runner_run_path(s, cell, repeat, ""),
                              .log = runner_run_path(s, cell, repeat, ".log"),
                              .stop = runner_stop(s, cell),
                              .goes_on = s->part && s->part->at > 0,
                              .pool = s->pool};
    struct process_end end;
    struct run_note note = {0};
    if (!r.config || !r.dir || !r.log) return ERR_MEMORY;
    TRY(runner_try_once(&r, &note, &end));
    for (; note.again < AGAIN_MOST && !stop_signal() && one_run_lost(&r, &end); note.again++) {
        log_warn("'%s', run %d: a rank or a host was lost (exit code %d): repeating the run, %d of %d", r.cell->label,
                 repeat + 1, end.code, note.again + 1, AGAIN_MOST);
        TRY(runner_try_once(&r, &note, &end));
    }
    if (stop_signal()) return r.goes_on ? ERR_NONE : one_run_remove(&r);
    bool diverged = runner_diverged(s, &r, &end);
    if ((end.code != 0 && !diverged) || end.late) return runner_failure(s, &r, &end);
    if (s->part) TRY(runner_score(s, cell, repeat, diverged));
    TRY(runner_write_note(s, cell, repeat, &note));
    if (!runner_take(s, cell, repeat))
        return FAIL(ERR_DATA, "'%s' ended with code 0, but did not finish its run", r.dir);
    return ERR_NONE;
}

/* ---- progress ---- */

static bool runner_is_wanted(const struct runner_state *s, int cell) {
    return !s->part || s->part->in[cell];
}

/* Estimates the seconds of the runs to come: each as long as the runs of the same cell took, or else as all did. */
static double runner_eta(const struct runner_state *s) {
    int all = 0;
    double sum = 0, left = 0;
    for (int i = 0; i < s->x->ncells * s->most; i++)
        if (s->done[i] && isfinite(s->seconds[i])) sum += s->seconds[i], all++;
    for (int i = 0; i < s->x->ncells; i++) {
        const bool *done = s->done + i * s->most;
        const double *seconds = s->seconds + i * s->most;
        double mine = 0;
        int count = 0;
        for (int k = 0; k < s->most; k++)
            if (done[k] && isfinite(seconds[k])) mine += seconds[k], count++;
        double one = count ? mine / count : all ? sum / all : 0;
        for (int k = 0; k < s->out->repeats && runner_is_wanted(s, i); k++) left += done[k] ? 0 : one;
    }
    return left;
}

/* The runs that are wanted, or those of them that are done. */
static int runner_count(const struct runner_state *s, bool done) {
    int n = 0;
    for (int i = 0; i < s->x->ncells; i++)
        for (int k = 0; k < s->out->repeats && runner_is_wanted(s, i); k++) n += !done || s->done[i * s->most + k];
    return n;
}

static void runner_show(const struct runner_state *s, int cell, int repeat, bool done) {
    char when[32];
    bool bar = isatty(STDERR_FILENO);
    if (s->r->quiet || (!bar && !done)) return;
    const struct compared_run *run = &s->out->cell[cell].run[repeat];
    char got[64] = "";
    const struct measure *m = &s->x->measure[0];
    if (done) {
        double v = s->part ? runner_scores(s, cell, repeat)[s->part->at] : measure_of(m, &run->result, s->x->warmup);
        snprintf(got, sizeof got, s->part && isinf(v) ? "  diverged" : "  %s %.4g %s", m->name, v, m->unit);
    }
    int number = runner_count(s, true) + !done, total = runner_count(s, false);
    fprintf(stderr, "%s[%d/%d] %s, run %d%s  eta %s%s", bar ? "\r" : "", number, total, s->x->cell[cell].label,
            repeat + 1, got, text_of_seconds(runner_eta(s), when), bar ? "\033[K" : "\n");
    fflush(stderr);
}

/* ---- the order ---- */

struct runner_turn {
    uint64_t place, side;
    int cell;
};

static int by_turn(const void *a, const void *b) {
    const struct runner_turn *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    if (x->side != y->side) return x->side < y->side ? -1 : 1;
    return x->cell - y->cell;
}

static void runner_draw_order(const struct experiment *x, int repeat, struct runner_turn *turns) {
    struct rng_key key = rng_key(x->seed, RNG_ORDER);
    for (int i = 0; i < x->ncells; i++) {
        int first = i;
        for (int side = 0; side < x->axis[0].count; side++) {
            int other = experiment_beside(x, i, side);
            if (other >= 0 && other < first) first = other;
        }
        uint64_t counter = (uint64_t)repeat * 2;
        turns[i] =
            (struct runner_turn){rng_u64(key, counter, (uint64_t)first), rng_u64(key, counter + 1, (uint64_t)i), i};
    }
    qsort(turns, (size_t)x->ncells, sizeof *turns, by_turn);
}

/* ---- all ---- */

enum error runner_lock_folder(const char *folder, struct pool *pool, int *fd) {
    char *path = pool_printf(pool, "%s/compare.lock", folder);
    if (!path) return ERR_MEMORY;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*fd < 0) return FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
    if (file_lock(*fd)) return ERR_NONE;
    close(*fd);
    return FAIL(ERR_CREATE, "another process runs the experiment in '%s'", folder);
}

static enum error runner_write_cells(const struct runner_state *s) {
    for (int i = 0; i < s->x->ncells; i++) {
        char *dir = pool_printf(s->pool, "%s/cells/%s", s->r->folder, s->x->cell[i].name);
        TRY(file_make_folders(dir));
        char *path = pool_printf(s->pool, "%s/config.yaml", dir);
        TRY(file_replace(path, s->x->cell[i].config, strlen(s->x->cell[i].config)));
    }
    return ERR_NONE;
}

static enum error runner_run_turns(struct runner_state *s) {
    struct runner_turn turns[EXPERIMENT_CELLS];
    int64_t synced = clock_ns();
    for (int repeat = 0; repeat < s->out->repeats; repeat++) {
        runner_draw_order(s->x, repeat, turns);
        for (int i = 0; i < s->x->ncells; i++) {
            int cell = turns[i].cell;
            if (s->done[cell * s->most + repeat] || !runner_is_wanted(s, cell)) continue;
            runner_show(s, cell, repeat, false);
            TRY(runner_run_one(s, cell, repeat));
            if (stop_signal()) return ERR_NONE;
            runner_show(s, cell, repeat, true);
            if (clock_seconds(clock_ns() - synced) < SYNC_SECONDS) continue;
            TRY(file_sync_system(s->r->folder));
            synced = clock_ns();
        }
    }
    return ERR_NONE;
}

/* Runs do not wait for the disk. What they write is synced from time to time and at the end; a host that fails costs the runs
 * since then. */
enum error runner_run_all(struct runner_state *s) {
    setenv(SYNC_VARIABLE, "later", 1);
    enum error err = runner_run_turns(s);
    unsetenv(SYNC_VARIABLE);
    return err == ERR_NONE ? file_sync_system(s->r->folder) : err;
}

void runner_gather(struct runner_state *s) {
    for (int i = 0; i < s->x->ncells; i++) {
        struct compared_cell *cell = &s->out->cell[i];
        cell->nruns = 0;
        for (int k = 0; k < s->out->repeats; k++)
            if (s->done[i * s->most + k]) cell->run[cell->nruns++] = cell->run[k];
    }
}

/* Their spread says how many runs are wanted. It is asked once, so that a difference that seems to be there ends nothing
 * early. */
static enum error runner_run_wanted(struct runner_state *s) {
    const struct experiment *x = s->x;
    runner_gather(s);
    TRY(compare_judge(s->out));
    int wanted = compare_wanted_repeats(s->out);
    if (wanted == s->out->repeats) return ERR_NONE;
    if (!s->r->quiet)
        fprintf(stderr,
                wanted < x->most
                    ? "%susing %d runs of each cell: by the spread of the first %d they detect a difference of %s in "
                      "%s with a chance of %.0f %%\n"
                    : "%susing the maximum of %d runs of each cell: the first %d vary too much to detect a difference "
                      "of %s in %s with a chance of %.0f %% by fewer\n",
                isatty(STDERR_FILENO) ? "\r\033[K" : "", wanted, s->out->repeats,
                compare_practical(s->out, &x->measure[0]), x->measure[0].name, 100 * COMPARE_CHANCE);
    s->out->repeats = wanted;
    return runner_run_all(s);
}

enum error runner_make_room(struct runner_state *s) {
    size_t n = (size_t)(s->x->ncells * s->most);
    s->done = pool_alloc(s->pool, n * sizeof *s->done);
    s->seconds = pool_alloc(s->pool, n * sizeof *s->seconds);
    return s->done && s->seconds ? ERR_NONE : ERR_MEMORY;
}

enum error runner_begin(struct runner_state *s) {
    TRY(runner_make_room(s));
    return runner_write_cells(s);
}

enum error runner_plan(const struct runner *r, const struct experiment *x, struct runner_plan *out) {
    struct compared runs;
    struct runner_state s = {.r = r, .x = x, .out = &runs, .pool = x->pool, .most = x->most};
    double sum = 0;
    TRY(compare_begin(x, r->folder, &runs));
    TRY(runner_make_room(&s));
    for (int i = 0; i < x->ncells; i++)
        for (int k = 0; k < s.most; k++)
            if (runner_take(&s, i, k)) sum += s.seconds[i * s.most + k];
    out->runs = x->ncells * x->repeats, out->done = runner_count(&s, true);
    out->seconds = out->done ? sum / out->done : (double)NAN;
    return ERR_NONE;
}

void runner_take_all(struct runner_state *s) {
    for (int i = 0; i < s->x->ncells; i++)
        for (int k = 0; k < s->most && runner_is_wanted(s, i); k++) (void)runner_take(s, i, k);
    if (runner_count(s, true) && !s->r->quiet)
        fprintf(stderr, "%d of %d runs are already in %s\n", runner_count(s, true), runner_count(s, false),
                s->r->folder);
}

static void runner_warn_few(const struct runner_state *s) {
    const char *few = s->r->quiet ? NULL : experiment_too_few(s->x, s->x->most);
    if (few) fprintf(stderr, "note: %s\n", few);
}

enum error runner_run(const struct runner *r, const struct experiment *x, struct compared *out) {
    struct runner_state s = {.r = r, .x = x, .out = out, .pool = x->pool, .most = x->most};
    int fd;
    TRY(compare_begin(x, r->folder, out));
    TRY(file_make_folders(r->folder));
    TRY(runner_lock_folder(r->folder, x->pool, &fd));
    enum error err = runner_begin(&s);
    if (err == ERR_NONE) runner_warn_few(&s), runner_take_all(&s);
    if (err == ERR_NONE && x->model_fit) link_fits_measure(x, r->folder, r->program, r->quiet);
    if (err == ERR_NONE) err = runner_run_all(&s);
    if (err == ERR_NONE && x->most > x->repeats && !stop_signal()) err = runner_run_wanted(&s);
    if (!r->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (s.done) runner_gather(&s);
    close(fd);
    return err;
}
