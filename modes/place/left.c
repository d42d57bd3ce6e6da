#include "modes/place/left.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/save/checkpoint.h"
#include "engine/settings/run_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void left_take_all(struct left *l) {
    l->count = l->config->devices.local;
    for (int i = 0; i < l->count; i++) l->which[i] = i;
}

enum error left_all(struct left *l, const struct run_config *c, struct pool *pool) {
    if (!l->which) l->which = pool_alloc(pool, (size_t)c->devices.local * sizeof *l->which);
    if (!l->which) return ERR_MEMORY;
    l->config = c;
    l->change = (struct job_change){.to = 0};
    left_take_all(l);
    return ERR_NONE;
}

enum error left_lose(struct left *l, const struct launch_result *r, const struct nodes_round *round,
                     struct pool *pool) {
    struct job_change *change = &l->change;
    int servers = l->config->sharing.servers_here; /* which come first */
    int *lost = pool_alloc(pool, (size_t)(l->count + servers) * sizeof *lost), kept = 0, next = 0;
    if (!lost) return ERR_MEMORY;
    for (int i = 0; i < servers + l->count; i++) {
        if (next < r->nlost && r->lost[next] == i)
            lost[next++] = i < servers ? round->first_server + i : round->first + i - servers;
        else if (i >= servers)
            l->which[kept++] = l->which[i - servers];
    }
    change->seen = r->seen;
    change->lost = lost, change->nlost = next;
    l->count = kept;
    return ERR_NONE;
}

void left_return(struct left *l, const struct launch_result *r, int64_t due) {
    left_take_all(l);
    l->change.seen = r->seen;
    l->change.nlost = 0;
    l->retry.done = true;
    l->retry.due = due;
}

void left_back_off(struct left *l, int64_t due) {
    enum { MOST = 1 << 20 };
    int before = l->retry.wait ? l->retry.wait : 1;
    bool lasted = !l->retry.done || due > l->retry.due;
    l->retry.wait = lasted ? 1 : before < MOST ? 2 * before : MOST;
}

void left_note(struct left *l, int from, const struct nodes_round *round) {
    struct job_change *c = &l->change;
    int wait = l->retry.wait ? l->retry.wait : 1, servers = l->config->sharing.servers;
    int to = round->world - servers;
    c->began = round->began - servers;
    c->from = from, c->to = to;
    c->losses += from > to ? from - to : 0;
    c->returns += to > from ? to - from : 0;
    c->wait = round->partial ? wait : round->fewer ? INT32_MAX : 0;
}

enum error left_devices(const struct left *l, struct pool *pool, const char **out) {
    const struct device_choice *d = &l->config->devices;
    *out = pool_printf(pool, d->listed || !l->count ? "%s" : "%s:%d", d->kind, l->count); /* servers alone have none */
    for (int i = 0; d->listed && *out && i < l->count; i++)
        *out = pool_printf(pool, "%s%c%d", *out, i ? ',' : ':', d->unit[l->which[i]]);
    return *out ? ERR_NONE : ERR_MEMORY;
}

/* ---- what is said of a loss ---- */

/* The last error among the lines, "" where there is none. */
static void lines_find_error(const char *lines, char out[ERROR_WORDS]) {
    static const char sign[] = "error: ";
    const char *error = NULL;
    for (const char *at = lines; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (!strncmp(at, sign, sizeof sign - 1)) error = at + sizeof sign - 1;
    snprintf(out, ERROR_WORDS, "%.*s", error ? (int)strcspn(error, "\n") : 0, error ? error : "");
}

void left_tell(const struct job *job, const struct launch_result *r) {
    char how[64];
    if (r->first == r->stuck)
        snprintf(how, sizeof how, "hung while the ranks on other hosts had ended");
    else if (r->signal)
        snprintf(how, sizeof how, "was killed by signal %d%s", r->signal, r->signal == 9 ? " (out of memory?)" : "");
    else
        snprintf(how, sizeof how, "ended with code %d", r->exit_code);
    log_error("rank %d %s; the others were ended %.2f s later", r->first, how, r->seconds);
    if (job->reason && r->signal)
        snprintf(job->reason, ERROR_WORDS, "rank %d %s", r->first, how);
    else if (job->reason)
        lines_find_error(r->lines, job->reason);
    if (r->stuck >= 0) log_error("rank %d did not end by itself and was killed: it was stopped, or stuck", r->stuck);
    bool alone = run_all_ranks(&job->settings->config) == 1;    /* then they have just been seen, ... */
    bool refused = r->exit_code == error_exit_code(ERR_CONFIG); /* ... as when nothing has begun */
    if (r->lines[0] && !alone && !refused) log_line(LOG_ERROR, "last lines of rank %d:\n%s", r->first, r->lines);
    if (job->task != JOB_TRAIN || refused) return;
    log_info("logs: %s/rank*.log - where each rank was: engine inspect %s", job->run_dir, job->run_dir);
    if (checkpoint_newest_step(job->run_dir, job->run_id, job->settings->pool))
        log_info("to continue from the last checkpoint: engine run %s", job->run_dir);
}

/* ---- the change, as text for the ranks ---- */

/* "4 4 3 1 0 2 8812345678 2": began, from, to, losses, returns, wait, seen, and the ranks that were lost. */
enum error change_write(const struct job_change *c, struct pool *pool, const char **out) {
    struct file_text t;
    *out = "";
    if (!c->to) return ERR_NONE;
    TRY(file_text_open(&t));
    fprintf(t.out, "%d %d %d %d %d %d %lld", c->began, c->from, c->to, c->losses, c->returns, c->wait,
            (long long)c->seen);
    for (int i = 0; i < c->nlost; i++) fprintf(t.out, " %d", c->lost[i]);
    *out = file_text_keep(&t, pool);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error change_read(const char *text, struct pool *pool, struct job_change *out) {
    long long seen;
    int at = 0, most = 0;
    struct job_change *c = out;
    *c = (struct job_change){.to = 0};
    if (!text || sscanf(text, "%9d %9d %9d %9d %9d %10d %20lld%n", &c->began, &c->from, &c->to, &c->losses, &c->returns,
                        &c->wait, &seen, &at) != 7) {
        c->to = 0;
        return ERR_NONE;
    }
    for (const char *space = text + at; (space = strchr(space, ' ')); space++) most++;
    int *lost = pool_alloc(pool, ((size_t)most + 1) * sizeof *lost);
    if (!lost) return ERR_MEMORY;
    for (char *end; text[at] == ' ' && c->nlost < most; at = (int)(end - text))
        lost[c->nlost++] = (int)strtol(text + at, &end, 10);
    c->lost = lost;
    c->seen = seen;
    return ERR_NONE;
}
