/* The dashboard of the run of this process: whom it follows, when it ends. */
#include "cli/dashboard/impl.h"

#include "engine/base/clock.h"
#include "engine/settings/run_config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOKING 3.0 /* seconds since a page asked last: it is still open */
struct dashboard {
    struct board_place place;
    bool told_end;
    struct board_server *server;
    pthread_mutex_t lock; /* of what follows, which the server's thread reads */
    struct board_state state;
    char *run; /* JSON */
};

/* ---- answers ---- */
static int dashboard_answer(void *user, const struct http_request *r, struct board_answer *a, FILE *body) {
    struct dashboard *d = user;
    bool good = true, last = false;
    if (*r->run || r->page == HTTP_RUNS) return 404; /* there is this one */
    pthread_mutex_lock(&d->lock);
    if (r->page == HTTP_RUN) fprintf(body, "%s\n", d->run ? d->run : "{}");
    if (r->page == HTTP_RANKS) good = board_ranks(&d->state, body);
    if (r->page == HTTP_METRICS) {
        a->next = r->since;
        good = board_metrics(&d->state, &a->next, &last, body);
        a->last_words = good && last && d->told_end;
    }
    if (r->page == HTTP_RANKS) d->told_end = good && d->state.ended;
    pthread_mutex_unlock(&d->lock);
    return good ? 200 : 500;
}

/* ---- its life ---- */
enum error dashboard_open(const char *address, struct dashboard **out) {
    *out = NULL;
    if (!strcmp(address, "off")) return ERR_NONE;
    struct timespec now;
    struct dashboard *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "no memory for the dashboard");
    pthread_mutex_init(&d->lock, NULL);
    clock_gettime(CLOCK_REALTIME, &now);
    d->state.since_wall = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    d->state.state = "running";
    enum error err = board_server_open(address, "--dashboard=", dashboard_answer, d, &d->place, &d->server);
    if (err != ERR_NONE) {
        pthread_mutex_destroy(&d->lock);
        free(d);
        return err;
    }
    *out = d;
    return ERR_NONE;
}

const char *dashboard_url(const struct dashboard *d) {
    return d->place.url;
}

void dashboard_follow(struct dashboard *d, const struct job *job) {
    struct pool *pool = job->settings->pool;
    struct run_result r = {.setting = pool_alloc(pool, RESULT_SETTINGS * sizeof *r.setting)};
    if (r.setting) r.nsettings = result_flatten(job->settings->tree, pool, r.setting, RESULT_SETTINGS);
    char *run = board_run(&r, job->settings->config.devices.count, job->run_dir, NULL, NULL);
    pthread_mutex_lock(&d->lock);
    d->state.run_dir = job->run_dir;
    d->run = run;
    pthread_mutex_unlock(&d->lock);
}

/* A page asks more than once a second; what it saw last should not be that nobody answers. */
static void dashboard_wait_for_page(struct dashboard *d) {
    int64_t until = clock_after(LOOKING);
    while (board_server_idle(d->server) < LOOKING && !board_server_done(d->server) && clock_ns() < until)
        clock_nap(10000000);
}

void dashboard_close(struct dashboard *d, int code) {
    if (!d) return;
    pthread_mutex_lock(&d->lock);
    d->state.ended = true;
    d->state.code = code;
    d->state.state = run_state_names[code == 0 ? RUN_FINISHED : code > 128 ? RUN_STOPPED : RUN_FAILED];
    pthread_mutex_unlock(&d->lock);
    dashboard_wait_for_page(d);
    board_server_stop(d->server);
    pthread_mutex_destroy(&d->lock);
    free(d->run);
    free(d);
}
