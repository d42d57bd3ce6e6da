/* What the dashboard answers: read anew from the run's folder each time, so that a run which nobody
 * looks at pays nothing. What lies there may be cut, or just being written. */
#include "cli/dashboard_impl.h"

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/version.h"
#include "transport/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { METRICS_PIECE = 256 << 10 };

/* ---- metrics ---- */
/* Whole lines alone: the last one may still be on its way. */
bool board_metrics(const struct board_state *s, int64_t *since, bool *last, FILE *out) {
    char path[4096];
    *last = true;
    if (!s->run_dir) return true;
    snprintf(path, sizeof path, "%s/metrics.jsonl", s->run_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0) return true; /* before the first step */
    char *piece = malloc(METRICS_PIECE);
    bool read_well = piece && fstat(fd, &st) == 0;
    if (read_well) {
        if (*since > st.st_size) *since = 0; /* of another file */
        ssize_t n = pread(fd, piece, METRICS_PIECE, *since);
        while (n > 0 && piece[n - 1] != '\n') n--;
        if (n > 0) *since += n, fwrite(piece, 1, (size_t)n, out);
        *last = n <= 0 || *since >= st.st_size;
        read_well = n >= 0;
    }
    free(piece);
    close(fd);
    return read_well;
}

/* ---- ranks ---- */
static const char *state_of(const struct recording *r) {
    if (r->closed) return r->clean ? "ended" : "failed";
    return kill(r->pid, 0) != 0 && errno == ESRCH ? "lost" : "runs";
}

/* The last call to the group that it has begun. */
static void tell_call(struct json *j, const struct recording *r, int64_t now) {
    if (r->ncalls == 0) return;
    const struct recording_call *c = &r->calls[r->ncalls - 1];
    json_open(j, "call", '{');
    json_string(j, "name", c->name);
    json_int(j, "count", c->call.count);
    json_string(j, "type", c->type);
    json_bool(j, "open", c->ended == 0);
    json_real(j, "age_s", clock_seconds(now - c->began));
    json_close(j, '}');
}

static void tell_rank(struct json *j, const struct recording *r) {
    int64_t now = clock_ns();
    json_open(j, NULL, '{');
    json_int(j, "rank", r->rank);
    json_int(j, "pid", r->pid);
    json_string(j, "host", r->host);
    json_string(j, "state", state_of(r));
    if (r->noted) {
        json_string(j, "doing", r->doing);
        json_int(j, "step", r->step);
        json_real(j, "age_s", clock_seconds(now - r->noted));
    }
    tell_call(j, r, now);
    json_close(j, '}');
}

static void tell_ranks(struct json *j, const struct board_state *s) {
    char path[4096];
    for (int i = 0; i < RANKS_MAX && s->run_dir; i++) {
        struct recording r;
        struct pool *pool;
        snprintf(path, sizeof path, "%s/flight/rank%d.bin", s->run_dir, i);
        if (access(path, R_OK) != 0 || pool_create(&pool) != ERR_NONE) continue;
        if (recording_read(path, pool, &r) == ERR_NONE && r.wall >= s->since_wall) tell_rank(j, &r);
        pool_free(pool);
    }
}

bool board_ranks(const struct board_state *s, FILE *out) {
    struct json j;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_bool(&j, "ended", s->ended);
    json_int(&j, "code", s->code);
    json_open(&j, "ranks", '[');
    tell_ranks(&j, s);
    json_close(&j, ']');
    json_close(&j, '}');
    bool good = json_done(&j) == ERR_NONE;
    if (good) fprintf(out, "%s\n", j.text);
    json_fini(&j);
    return good;
}

/* ---- the run ---- */
static const char *bare(const struct node *n) {
    const struct node *zoo = n ? node_get(n, "zoo") : NULL;
    if (zoo) n = zoo;
    return n && n->kind == NODE_SCALAR ? n->text : "layers of its own";
}

char *board_run(const struct job *job) {
    const struct run_config *c = &job->settings->config;
    struct json j;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_string(&j, "version", ENGINE_VERSION);
    json_string(&j, "name", c->name);
    json_string(&j, "mode", c->mode);
    json_string(&j, "devices", c->devices_text);
    json_int(&j, "count", c->devices.count);
    json_string(&j, "model", bare(c->model));
    json_int(&j, "batch", c->batch.size);
    json_int(&j, "shards", c->batch.shards);
    json_int(&j, "nodes", c->run.nodes);
    json_int(&j, "seed", c->seed);
    json_string(&j, "run_dir", job->run_dir);
    json_close(&j, '}');
    if (json_done(&j) == ERR_NONE) return j.text;
    json_fini(&j);
    return NULL;
}
