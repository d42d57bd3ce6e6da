/* How one run is started: 'engine run' or an external command, here, under a launcher, or on several hosts. */
#include "lab/runner/impl.h"

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/train/stop.h"
#include "lab/results/foreign.h"
#include "transport/launch/token.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIST_MOST = 320, GRACE = 10, NO_SSH = 255 };
struct start_list { /* of words; ended by NULL */
    const char *of[LIST_MOST];
    int n;
    bool failed; /* no memory, or too many */
};

static void word_add(struct start_list *l, const char *text) {
    l->failed |= !text || l->n == LIST_MOST - 1;
    if (!l->failed) l->of[l->n++] = text;
}

static void words_add(struct start_list *l, const char *const *texts) {
    for (; texts && *texts; texts++) word_add(l, *texts);
}

static void set_add(struct start_list *l, const char *text) {
    word_add(l, "--set");
    word_add(l, text);
}

static enum error list_check(const struct start_list *l) {
    return !l->failed ? ERR_NONE
                      : FAIL(ERR_MEMORY, "more than %d words or variables, or no memory for them", LIST_MOST);
}

/* ---- 'engine run' ---- */

/* A YAML text in double quotes. */
static char *run_yaml_quoted(struct pool *pool, const char *key, const char *text) {
    char *out = pool_printf(pool, "%s=\"", key);
    for (; *text && out; text++)
        out = pool_printf(pool, "%s%s%c", out, *text == '"' || *text == '\\' ? "\\" : "", *text);
    return out ? pool_printf(pool, "%s\"", out) : NULL;
}

/* The same file from everywhere. */
static const char *run_path_absolute(struct pool *pool, const char *path) {
    char full[PATH_MAX];
    if (*path == '/') return path;
    return getcwd(full, sizeof full) ? pool_printf(pool, "%s/%s", full, path) : path;
}

static void run_add_engine(const struct one_run *r, struct start_list *l) {
    const char *paths[] = {r->config, r->dir};
    bool far = r->cell->start.under || r->cell->start.nhosts;
    for (int i = 0; i < 2 && far; i++)
        if (!(paths[i] = run_path_absolute(r->pool, paths[i]))) l->failed = true;
    if (l->failed) return;
    words_add(l, r->cell->start.under);
    word_add(l, far ? process_path(r->program, r->pool) : r->program);
    word_add(l, "run");
    word_add(l, paths[0]);
    word_add(l, "--json");
    word_add(l, "--quiet");
    set_add(l, run_yaml_quoted(r->pool, "log.dir", paths[1]));
    set_add(l, r->goes_on ? "checkpoint.resume=auto" : "checkpoint.resume=never");
    if (r->stop) set_add(l, pool_printf(r->pool, "train.stop=%s", r->stop));
    set_add(l, "log.dashboard=off");
    if (r->x->nseeds) set_add(l, pool_printf(r->pool, "seed=%lld", (long long)r->x->seeds[r->repeat]));
}

/* Ranks on several hosts need a secret in common; the user's own, or one of this run. */
static const char *run_secret_name(const struct one_run *r) {
    const char *token = getenv(TOKEN_VARIABLE);
    char random[SECRET_SIZE];
    if (token) return token;
    return secret_random(random) == ERR_NONE ? pool_printf(r->pool, "%s", random) : NULL;
}

static enum error run_engine(const struct one_run *r, struct process_limits limits, struct process_end *end) {
    const struct experiment_start *s = &r->cell->start;
    struct start_list words = {0}, variables = {0};
    run_add_engine(r, &words);
    words_add(&variables, s->variables);
    if (s->under) word_add(&variables, pool_printf(r->pool, TOKEN_VARIABLE "=%s", run_secret_name(r)));
    if (s->under) word_add(&variables, SYNC_VARIABLE "="); /* it may run on another host */
    TRY(list_check(&words));
    TRY(list_check(&variables));
    const struct process p = {words.of[0], words.of + 1, NULL, "/dev/null", r->log, variables.of, NULL};
    return processes_run(&p, 1, limits, r->pool, end);
}

/* ---- on several hosts ---- */

static char *run_shell_word(struct pool *pool, char *before, const char *word) {
    char *out = before ? pool_printf(pool, "%s '", before) : NULL;
    for (; *word && out; word++)
        out = *word == '\'' ? pool_printf(pool, "%s'\\''", out) : pool_printf(pool, "%s%c", out, *word);
    return out ? pool_printf(pool, "%s'", out) : NULL;
}

/* The secret comes as the first line that the shell reads, so that no list of processes shows it. That there is an end
 * of what it reads says that the experiment has gone, or wants it to end: then the engine is asked to stop. */
static char *start_script(const struct one_run *r, int host) {
    struct start_list words = {0};
    run_add_engine(r, &words);
    set_add(&words, pool_printf(r->pool, "run.node_rank=%d", host));
    char *text = words.failed ? NULL
                              : pool_printf(r->pool, "exec 3<&0; IFS= read -r " TOKEN_VARIABLE
                                                     "; export " TOKEN_VARIABLE "; env");
    for (const char *const *v = r->cell->start.variables; v && *v; v++) text = run_shell_word(r->pool, text, *v);
    for (int i = 0; i < words.n; i++) text = run_shell_word(r->pool, text, words.of[i]);
    return text ? pool_printf(r->pool,
                              "%s </dev/null 3<&- & p=$!; { cat <&3 >/dev/null; kill $p; } 2>/dev/null & c=$!; "
                              "exec 3<&-; wait $p; s=$?; kill $c 2>/dev/null; exit $s",
                              text)
                : NULL;
}

static enum error run_hosts(const struct one_run *r, struct process_limits limits, struct process_end *end) {
    const struct experiment_start *s = &r->cell->start;
    struct process p[PROCESSES_MOST];
    const char *args[PROCESSES_MOST][5];
    const char *token = run_secret_name(r), *input = token ? pool_printf(r->pool, "%s\n", token) : NULL;
    if (!input) return ERR_MEMORY;
    for (int i = 0; i < s->nhosts; i++) {
        const char *const words[5] = {"-o", "BatchMode=yes", s->hosts[i], start_script(r, i), NULL};
        char *log = one_run_log(r, i);
        if (!words[3] || !log) return ERR_MEMORY;
        memcpy(args[i], words, sizeof words);
        p[i] = (struct process){"ssh", args[i], NULL, "/dev/null", log, NULL, input};
    }
    return processes_run(p, s->nhosts, limits, r->pool, end);
}

/* ---- a command ---- */

static const char *run_seed_of(const struct one_run *r) {
    if (r->x->nseeds) return pool_printf(r->pool, "%lld", (long long)r->x->seeds[r->repeat]);
    const char *given = result_setting_of(r->cell->setting, r->cell->nsettings, "seed");
    return given ? given : "0";
}

static void run_add_variable(const struct one_run *r, struct start_list *l, const char *name, const char *value) {
    word_add(l, value ? pool_printf(r->pool, "ENGINE_%s=%s", name, value) : NULL);
}

/* The keys of a command's run, as they were given. */
static enum error run_settings_of(const struct one_run *r, struct node **out) {
    const struct experiment_cell *cell = r->cell;
    const struct node seed = {.kind = NODE_SCALAR, .text = run_seed_of(r), .source = "seeds"};
    struct node *tree = tree_copy(cell->settings.tree, r->pool);
    struct config_errors *e;
    if (!tree || !seed.text) return ERR_MEMORY;
    TRY(config_errors_create(&e));
    enum error err = tree_put(tree, "seed", &seed, r->pool, e);
    for (int i = 0; i < cell->start.keys->count && err == ERR_NONE; i++)
        err = tree_put(tree, cell->start.keys->items[i]->key, cell->start.keys->items[i], r->pool, e);
    config_errors_free(e);
    *out = tree;
    return err;
}

static enum error run_finish_command(const struct one_run *r, const struct foreign *f) {
    enum error err = foreign_finish(f, r->pool);
    return err == ERR_NONE ? err : error_prefix(err, "'%s', run %d: ", r->cell->label, r->repeat + 1);
}

static enum error run_command(const struct one_run *r, struct process_limits limits, struct process_end *end) {
    struct start_list words = {0}, variables = {0};
    const char *dir = run_path_absolute(r->pool, r->dir), *out = pool_printf(r->pool, "%s/output.txt", r->dir);
    const char *metrics = dir ? pool_printf(r->pool, "%s/command.jsonl", dir) : NULL;
    struct node *settings;
    if (!metrics || !out) return ERR_MEMORY;
    words_add(&words, r->cell->start.under);
    words_add(&words, r->cell->start.command);
    words_add(&variables, r->cell->start.variables);
    word_add(&variables, SYNC_VARIABLE "=");
    run_add_variable(r, &variables, "SEED", run_seed_of(r));
    run_add_variable(r, &variables, "REPEAT", pool_printf(r->pool, "%d", r->repeat + 1));
    run_add_variable(r, &variables, "DEVICES", pool_printf(r->pool, "%d", r->cell->settings.config.devices.count));
    run_add_variable(r, &variables, "RUN_DIR", dir);
    run_add_variable(r, &variables, "METRICS", metrics);
    run_add_variable(r, &variables, "CONFIG", run_path_absolute(r->pool, r->config));
    TRY(list_check(&words));
    TRY(list_check(&variables));
    TRY(run_settings_of(r, &settings));
    TRY(foreign_begin(r->dir, r->pool));
    const struct process p = {words.of[0], words.of + 1, r->x->folder, out, r->log, variables.of, NULL};
    TRY(processes_run(&p, 1, limits, r->pool, end));
    if (end->code || end->late || stop_signal()) return ERR_NONE;
    const struct foreign f = {.dir = r->dir,
                              .metrics = metrics,
                              .out = out,
                              .settings = settings,
                              .devices = r->cell->settings.config.devices.count,
                              .warmup = r->x->warmup,
                              .memory = (double)end->used.ru_maxrss * 1024};
    return run_finish_command(r, &f);
}

/* ---- all ---- */

enum error one_run(const struct one_run *r, struct process_end *end) {
    const struct process_limits limits = {r->x->timeout, GRACE};
    if (r->cell->start.command) return run_command(r, limits, end);
    return r->cell->start.nhosts ? run_hosts(r, limits, end) : run_engine(r, limits, end);
}

char *one_run_log(const struct one_run *r, int which) {
    return which ? pool_printf(r->pool, "%.*s.host%d.log", (int)strlen(r->log) - 4, r->log, which)
                 : pool_printf(r->pool, "%s", r->log);
}

enum error one_run_remove(const struct one_run *r) {
    for (int i = 1; i < r->cell->start.nhosts; i++)
        TRY(file_remove_tree(pool_printf(r->pool, "%s-node-%d", r->dir, i)));
    return file_remove_tree(r->dir);
}

bool one_run_lost(const struct one_run *r, const struct process_end *end) {
    if (r->cell->start.command || end->late) return false;
    return end->code == error_exit_code(ERR_PEER) ||
           (r->cell->start.nhosts && (end->code > 128 || end->code == NO_SSH));
}
