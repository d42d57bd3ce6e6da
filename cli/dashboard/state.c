/* What the dashboard answers: read anew from the run's folder each time, so that a run which nobody
 * looks at pays nothing. What lies there may be cut, or just being written. */
#include "cli/dashboard/impl.h"

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/base/text.h"
#include "engine/base/version.h"
#include "transport/link/link.h"

#include <fcntl.h>
#include <stdlib.h>
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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0) return true; /* before the first step */
    char *piece = malloc(METRICS_PIECE);
    bool read_well = piece && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
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
static const char *state_of(const struct recording *r, bool ended) {
    if (r->closed) return r->clean ? "ended" : "failed";
    return ended || r->process == PROCESS_GONE ? "lost" : r->process == PROCESS_STOPPED ? "stopped" : "runs";
}

static void board_tell_call(struct json *j, const char *key, const struct recording_call *c, int64_t now) {
    json_open(j, key, '{');
    json_string(j, "name", c->name);
    if (c->call.sequence) json_int(j, "number", c->call.sequence);
    if (!c->call.sequence) json_int(j, "peer", c->call.peer);
    if (c->call.lane >= LANES) json_int(j, "tag", c->call.tag);
    json_put(j, JSON_INT("bytes", c->bytes), JSON_INT("count", c->call.count), JSON_TEXT("type", c->type),
             JSON_BOOL("open", c->ended == 0), JSON_REAL("age_s", clock_seconds(now - c->began)));
    json_close(j, '}');
}

void dashboard_rank(struct json *j, const struct recording *r, bool ended) {
    int64_t now = clock_ns();
    json_open(j, NULL, '{');
    json_put(j, JSON_INT("rank", r->rank), JSON_INT("pid", r->pid), JSON_TEXT("host", r->host),
             JSON_TEXT("state", state_of(r, ended)));
    if (r->noted)
        json_put(j, JSON_TEXT("doing", r->doing), JSON_INT("step", r->step),
                 JSON_REAL("age_s", clock_seconds(now - r->noted)));
    if (r->ncalls) board_tell_call(j, "call", &r->calls[r->ncalls - 1], now); /* the last that it has begun */
    for (int i = 0; i < r->ncalls; i++)
        if (r->calls[i].call.lane == LANE_IN && !r->calls[i].ended) board_tell_call(j, "waits", &r->calls[i], now);
    json_close(j, '}');
}

static void board_tell_ranks(struct json *j, const struct board_state *s) {
    char path[4096];
    int size = RANKS_MOST;
    for (int i = 0; i < size && s->run_dir; i++) {
        struct recording r;
        struct pool *pool;
        snprintf(path, sizeof path, "%s/flight/rank%d.bin", s->run_dir, i);
        if (access(path, R_OK) != 0 || pool_create(&pool) != ERR_NONE) continue;
        if (recording_read(path, pool, &r) == ERR_NONE && r.wall >= s->since_wall) {
            dashboard_rank(j, &r, s->ended);
            size = r.size;
        }
        pool_free(pool);
    }
}

bool board_ranks(const struct board_state *s, FILE *out) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_bool(&j, "ended", s->ended);
    if (s->code < 0)
        json_string(&j, "code", NULL);
    else
        json_int(&j, "code", s->code);
    json_put(&j, JSON_TEXT("state", s->state), JSON_TEXT("reason", s->reason), JSON_BOOL("watched", s->watched));
    json_open(&j, "ranks", '[');
    board_tell_ranks(&j, s);
    json_close(&j, ']');
    json_close(&j, '}');
    bool good = json_done(&j) == ERR_NONE;
    if (good) fprintf(out, "%s\n", j.text);
    json_fini(&j);
    return good;
}

/* ---- the run ---- */
static void board_put_whole(struct json *j, const struct run_result *r, const char *key, const char *setting) {
    int64_t n;
    if (text_int(run_result_setting(r, setting), &n))
        json_int(j, key, n);
    else
        json_string(j, key, run_result_setting(r, setting));
}

char *board_run(const struct run_result *r, int64_t devices, const char *run_dir, const char *name,
                const struct remark *remark) {
    const char *zoo = run_result_setting(r, "model.zoo"), *model = *zoo ? zoo : run_result_setting(r, "model");
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_put(&j, JSON_TEXT("version", ENGINE_VERSION), JSON_TEXT("name", name ? name : run_result_setting(r, "name")),
             JSON_TEXT("mode", run_result_setting(r, "mode")), JSON_TEXT("devices", run_result_setting(r, "devices")));
    if (devices >= 0) json_int(&j, "count", devices);
    json_string(&j, "model", *model ? model : "its own layers");
    board_put_whole(&j, r, "batch", "batch.size");
    board_put_whole(&j, r, "shards", "batch.shards");
    board_put_whole(&j, r, "nodes", "run.nodes");
    board_put_whole(&j, r, "seed", "seed");
    json_string(&j, "run_dir", run_dir);
    if (remark) json_put(&j, JSON_TEXT("tags", remark->tags), JSON_TEXT("note", remark->note));
    json_open(&j, "settings", '{');
    for (int i = 0; i < r->nsettings; i++) json_string(&j, r->setting[i].key, r->setting[i].value);
    json_close(&j, '}');
    json_close(&j, '}');
    if (json_done(&j) == ERR_NONE) return j.text;
    json_fini(&j);
    return NULL;
}
