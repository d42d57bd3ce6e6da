/* Where the recordings of programs' groups lie, and for how long. A recording outlives its process, however that dies,
 * so somebody has to remove it. If all ranks leave well, the last one does; a process that exits without closing its
 * groups leaves them as it exits. Whoever opens the next group removes the oldest of those that have otherwise ended,
 * once the newest take FLIGHT_KEEP bytes. */
#include "transport/flight/flight.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "transport/core.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FLIGHT_CALLS = 512, FLIGHT_KEEP = 8 << 20 };

struct group_flight {
    struct recorder *recorder;
    char name[FLIGHT_NAME], folder[PATH_MAX + FLIGHT_NAME]; /* folder: the group's own */
    struct group_flight *next;
};
static struct group_flight *flights; /* of this process */
static pthread_mutex_t flights_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- reading ---- */

/* The folder of all groups; false: nothing is to be recorded. */
static bool flights_folder(char out[PATH_MAX]) {
    const char *given = getenv("ENGINE_FLIGHT");
    int n = given ? snprintf(out, PATH_MAX, "%s", given)
                  : snprintf(out, PATH_MAX, "/dev/shm/engine-flight-%u", (unsigned)geteuid());
    return n > 0 && n < PATH_MAX - FLIGHT_NAME - 32;
}

/* One of them, with the ranks whose files can be read. pool NULL: without the recordings. */
static enum error flight_read(const char *folder, const char *name, struct pool *pool, struct flight_group *out) {
    struct recording one;
    *out = (struct flight_group){.name = name, .over = true};
    for (int rank = 0, size = RANKS_MOST; rank < size; rank++) {
        struct stat st;
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s/rank%d.bin", folder, name, rank);
        if (length >= PATH_MAX || lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) continue;
        enum error err = recording_read(path, pool, &one);
        if (err == ERR_MEMORY) return err;
        if (err) continue;
        if (out->n == 0) size = one.size; /* a damaged one may say another */
        out->lives |= !one.closed && one.process != PROCESS_GONE;
        out->over &= one.clean || one.exited;
        if (pool && !out->ranks) out->ranks = pool_alloc(pool, (size_t)size * sizeof *out->ranks);
        if (pool && !out->ranks) return ERR_MEMORY;
        if (pool) out->ranks[out->n] = one;
        if (out->n++ == 0 || one.wall < out->opened) out->opened = one.wall;
        out->bytes += (size_t)st.st_size;
    }
    return ERR_NONE;
}

static int flight_by_age(const void *a, const void *b) {
    const struct flight_group *x = a, *y = b;
    return (x->opened > y->opened) - (x->opened < y->opened);
}

/* brief: without the recordings. */
static enum error flights_list(const char *folder, struct pool *pool, bool brief, struct flight_group **out, int *n) {
    enum { GROUPS_MAX = 4096 };
    struct flight_group *groups = *out = pool_alloc(pool, GROUPS_MAX * sizeof *groups);
    DIR *dir = opendir(folder);
    enum error err = groups ? ERR_NONE : ERR_MEMORY;
    *n = 0;
    for (struct dirent *e; dir && !err && *n < GROUPS_MAX && (e = readdir(dir));) {
        if (strlen(e->d_name) >= FLIGHT_NAME || *e->d_name == '.') continue;
        const char *name = pool_strndup(pool, e->d_name, strlen(e->d_name));
        err = name ? flight_read(folder, name, brief ? NULL : pool, &groups[*n]) : ERR_MEMORY;
        if (!err) *n += groups[*n].n > 0;
    }
    if (dir) closedir(dir);
    if (!err) qsort(groups, (size_t)*n, sizeof *groups, flight_by_age);
    return err;
}

enum error flight_list(struct pool *pool, struct flight_group **out, int *n) {
    char folder[PATH_MAX];
    *n = 0;
    return flights_folder(folder) ? flights_list(folder, pool, false, out, n) : ERR_NONE;
}

/* ---- removing ---- */

/* The last rank of this host to leave well removes the folder. */
static void flight_drop_if_over(const struct group_flight *f) {
    struct flight_group g;
    char folder[PATH_MAX];
    if (flight_read(f->folder, ".", NULL, &g) != ERR_NONE || g.n == 0 || !g.over) return;
    if (file_remove_tree(f->folder) != ERR_NONE) log_debug("%s", error_message());
    if (!getenv("ENGINE_FLIGHT") && flights_folder(folder)) (void)rmdir(folder); /* if that was the last group */
}

static void flights_leave_at_exit(void) {
    pthread_mutex_lock(&flights_mutex);
    for (struct group_flight *f = flights; f; f = f->next) {
        recorder_leave(f->recorder, recorder_failed(f->recorder) ? RECORDED_FAILED : RECORDED_EXIT);
        flight_drop_if_over(f);
    }
    pthread_mutex_unlock(&flights_mutex);
}

/* Removes the oldest groups that nobody writes any more, once newer ones fill the room. */
static void flight_sweep(const char *folder) {
    struct flight_group *groups;
    struct pool *pool;
    char path[PATH_MAX];
    size_t kept = 0;
    int n;
    if (pool_create(&pool) != ERR_NONE) return;
    if (flights_list(folder, pool, true, &groups, &n) != ERR_NONE) n = 0;
    for (int i = n - 1; i >= 0; i--) {
        bool full = kept >= FLIGHT_KEEP;
        if (groups[i].lives) continue;
        if (!full) kept += groups[i].bytes;
        if (full && snprintf(path, sizeof path, "%s/%s", folder, groups[i].name) < PATH_MAX &&
            file_remove_tree(path) != ERR_NONE)
            log_debug("%s", error_message());
    }
    pool_free(pool);
}

/* ---- writing ---- */

/* Everybody may write to /dev/shm: a folder there that another user made or may write to is not used. */
static enum error flights_make_folder(const char *folder) {
    struct stat st;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return FAIL(ERR_CREATE, "cannot create '%s': %s", folder, strerror(errno));
    if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
        return FAIL(ERR_CREATE, "'%s' is not a folder that this user alone can write", folder);
    return ERR_NONE;
}

/* A name that no other group has, from the clock and the process number of rank 0. */
static enum error flight_agree_on_name(struct group *g, char out[FLIGHT_NAME]) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t id = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + (int64_t)getpid();
    TRY(group_broadcast(g, GROUP_INLINE, &id, 1, DTYPE_I64, 0));
    snprintf(out, FLIGHT_NAME, "%llx", (unsigned long long)id);
    return ERR_NONE;
}

/* Tries twice, since a rank that leaves at once may remove the folder in between. */
static enum error flight_create_file(const struct group *g, struct group_flight *f) {
    char path[sizeof f->folder + 32];
    snprintf(path, sizeof path, "%s/rank%d.bin", f->folder, g->rank);
    const struct recorder_params p = {
        .path = path, .rank = g->rank, .size = g->size, .calls = FLIGHT_CALLS, .mail = g->params.mail, .private = true};
    enum error err = recorder_open(&p, &f->recorder);
    return err ? recorder_open(&p, &f->recorder) : err;
}

static void flight_enlist(struct group_flight *f) {
    static bool registered;
    pthread_mutex_lock(&flights_mutex);
    if (!registered) registered = atexit(flights_leave_at_exit) == 0;
    f->next = flights;
    flights = f;
    pthread_mutex_unlock(&flights_mutex);
}

enum error flight_open(struct group *g, const struct group_flight *parent, int split, int color,
                       struct group_flight **out) {
    char folder[PATH_MAX];
    *out = NULL;
    if (g->size == 1) return ERR_NONE;
    struct group_flight *f = memory_new(sizeof *f);
    if (!f) return ERR_MEMORY;
    enum error err = ERR_NONE;
    bool first = g->params.roster ? g->params.roster->of[g->rank].local == 0 : g->rank == 0; /* of this host */
    if (!split)
        err = flight_agree_on_name(g, f->name);
    else if (parent && snprintf(f->name, FLIGHT_NAME, "%s.%d-%d", parent->name, split, color) >= FLIGHT_NAME)
        *f->name = '\0';
    if (err || !*f->name || !flights_folder(folder)) {
        memory_free(f);
        return err;
    }
    snprintf(f->folder, sizeof f->folder, "%s/%s", folder, f->name);
    err = flights_make_folder(folder);
    if (!err && !split && first) flight_sweep(folder);
    if (!err) err = flight_create_file(g, f);
    if (err) {
        log_warn("no flight recorder: %s", error_message());
        memory_free(f);
        return ERR_NONE;
    }
    flight_enlist(f);
    g->params.recorder = f->recorder;
    *out = f;
    return ERR_NONE;
}

void flight_close(struct group_flight *f, bool failed) {
    if (!f) return;
    pthread_mutex_lock(&flights_mutex);
    struct group_flight **at = &flights;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
    pthread_mutex_unlock(&flights_mutex);
    recorder_close(f->recorder, !failed && !recorder_failed(f->recorder));
    flight_drop_if_over(f);
    memory_free(f);
}

const char *flight_name(const struct group_flight *f) {
    return f ? f->name : "";
}

struct recorder *flight_recorder(const struct group_flight *f) {
    return f ? f->recorder : NULL;
}
