/* engine dashboard: the page of a run that has ended, or that another process trains, or of all runs below a folder.
 * Everything is read anew from their files when it is asked for; nothing is kept but the table of a folder, in which
 * rows are read anew when their files have changed. */
#include "cli/dashboard/impl.h"
#include "cli/line/cli.h"
#include "cli/results/runs.h"

#include "engine/base/clock.h"
#include "engine/settings/run_config.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { REST = 9 };                  /* a table is read anew after as many times the time that reading it took, */
static const double LEAST_REST = 1; /* and this, in seconds */

struct dashboard_options {
    const char *path, *at;
};
#define OPTIONS_STRUCT struct dashboard_options
struct board_watch { /* used by the server's thread alone */
    const char *path;
    bool one;          /* path is a run */
    struct pool *pool; /* of the table */
    struct listing all;
    int64_t read, took; /* when, and how long that was */
};

/* ---- which run ---- */

static enum error table_refresh(struct board_watch *w) {
    int64_t now = clock_ns();
    double rest = clock_seconds(w->took) * REST;
    struct pool *pool;
    struct listing all;
    if (w->pool && clock_seconds(now - w->read) < (rest > LEAST_REST ? rest : LEAST_REST)) return ERR_NONE;
    TRY(pool_create(&pool));
    enum error err = runs_list_again(w->path, &w->all, pool, &all);
    struct pool *old = err == ERR_NONE ? w->pool : pool;
    if (err == ERR_NONE) w->pool = pool, w->all = all;
    pool_free(old);
    w->read = clock_ns();
    w->took = w->read - now;
    return err;
}

/* Finds a run's folder and its name on the page; false: there is no such run. */
static bool watch_run_find(struct board_watch *w, const char *id, const char **dir, const char **name) {
    *dir = w->path;
    *name = NULL;
    if (w->one || !*id) return w->one && !*id;
    if (table_refresh(w) != ERR_NONE) return false;
    for (int i = 0; i < w->all.count; i++)
        if (!strcmp(w->all.of[i].id, id) && !w->all.of[i].experiment) {
            *dir = w->all.of[i].dir;
            *name = w->all.of[i].name;
            return true;
        }
    return false;
}

/* ---- answers ---- */

/* All rows, or those that have changed since the version that the page has, if no row has gone meanwhile. */
static bool watch_tell_runs(struct board_watch *w, int64_t since, struct board_answer *a, FILE *body) {
    struct json j = {0};
    if (table_refresh(w) != ERR_NONE) return false;
    a->next = w->all.version;
    bool good = runs_json(w->path, &w->all, since < w->all.since || since > w->all.version ? 0 : since, &j) == ERR_NONE;
    if (good) fprintf(body, "%s\n", j.text);
    json_fini(&j);
    return good;
}

/* A configuration that cannot be read leaves its fields empty: what else is there is shown. */
static bool watch_run_json(const char *dir, const char *name, const struct listed *r, struct pool *pool, FILE *body) {
    struct run_result settings = {0};
    if (run_result_settings(dir, pool, &settings) != ERR_NONE) settings.nsettings = 0;
    char *text = board_run(&settings, r->devices, dir, name, &r->remark);
    if (text) fprintf(body, "%s\n", text);
    free(text);
    return text != NULL;
}

/* When the run was started last; 0: that is not known. */
static int64_t watch_run_started(const struct listed *r) {
    struct tm t = {0};
    return strptime(r->when, "%Y-%m-%dT%H:%M:%SZ", &t) ? (int64_t)timegm(&t) * 1000000000 : 0;
}

static int watch_run_answer(const char *dir, const char *name, const struct http_request *r, struct board_answer *a,
                            struct pool *pool, FILE *body) {
    struct listed run;
    bool last, good;
    a->next = r->since;
    if (r->page == HTTP_METRICS)
        return board_metrics(&(struct board_state){.run_dir = dir}, &a->next, &last, body) ? 200 : 500;
    a->next = -1;
    if (runs_one(dir, pool, &run) != ERR_NONE) return 500;
    const struct board_state s = {.run_dir = dir,
                                  .since_wall = watch_run_started(&run),
                                  .ended = run.state != RUN_RUNNING,
                                  .watched = true,
                                  .code = run.state == RUN_FINISHED ? 0 : -1,
                                  .state = run_state_names[run.state],
                                  .reason = run.reason};
    good = r->page == HTTP_RANKS ? board_ranks(&s, body) : watch_run_json(dir, name, &run, pool, body);
    return good ? 200 : 500;
}

static int watch_answer(void *user, const struct http_request *r, struct board_answer *a, FILE *body) {
    struct board_watch *w = user;
    struct pool *pool;
    const char *dir, *name;
    if (r->page == HTTP_RUNS) return w->one ? 404 : watch_tell_runs(w, r->since, a, body) ? 200 : 500;
    if (r->page == HTTP_RUN && !w->one && !*r->run) return fputs("{\"folder\":true}\n", body) < 0 ? 500 : 200;
    if (!watch_run_find(w, r->run, &dir, &name)) return 404;
    if (pool_create(&pool) != ERR_NONE) return 500;
    int status = watch_run_answer(dir, name, r, a, pool, body);
    pool_free(pool);
    return status;
}

/* ---- the command ---- */

/* Serves until a signal asks for an end. */
static enum error board_serve(struct board_watch *w, const char *address) {
    struct board_place place = {0};
    struct board_server *server;
    sigset_t end;
    int signal;
    sigemptyset(&end);
    for (const int *s = (const int[]){SIGINT, SIGTERM, SIGHUP, 0}; *s; s++) sigaddset(&end, *s);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    TRY(board_server_open(address, "--at ", watch_answer, w, &place, &server));
    printf("%s at %s until Ctrl-C\n", w->path, place.url);
    fflush(stdout);
    sigwait(&end, &signal);
    board_server_stop(server);
    return ERR_NONE;
}

static int watch_command(const struct cli *cli) {
    const struct dashboard_options *o = cli->options;
    struct board_watch w = {.path = o->path, .one = runs_is_one(o->path)};
    if (!run_is_address(o->at))
        return cli_usage(cli, "--at: '%s' is not an address such as 8080, 127.0.0.1:8080 or [::1]:8080", o->at);
    enum error err = w.one ? ERR_NONE : table_refresh(&w);
    if (err == ERR_NONE) err = board_serve(&w, o->at);
    pool_free(w.pool);
    return cli_end(err);
}

static const struct option options[] = {
    {"RUN_DIR | FOLDER", NULL, "a run's directory, or a folder of runs; default: runs/", CONFIG_STRING, AT(path),
     .one = "folder"},
    {"--at", "ADDRESS", "PORT for this host only (0: any free port) or HOST:PORT; " DASHBOARD_STANDARD " by itself",
     CONFIG_STRING, AT(at), .wants = "an address"},
    {0}};

const struct command command_dashboard = {
    .name = "dashboard",
    .summary = "shows runs in a browser: one run, finished or still training, or all runs below a folder",
    OPTIONS(options),
    .notes = "It follows runs that still train. A run can show itself: engine run --dashboard.\n"
             "Exit codes: 0 ended by Ctrl-C or a signal; 64 usage; 66 no such folder; 69 the port is taken\n",
    .standard = &(const struct dashboard_options){.path = "runs", .at = DASHBOARD_STANDARD},
    .run = watch_command,
};
