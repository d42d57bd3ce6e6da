#include "lab/results/listed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

const char *const run_state_names[RUN_STATES] = {"running", "finished",   "stopped",
                                                 "failed",  "unfinished", "unreadable"};

static int64_t listed_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* FNV-1a over the bytes of a number. */
static uint64_t listed_mix(uint64_t digest, uint64_t value) {
    for (int i = 0; i < 64; i += 8) digest = (digest ^ ((value >> i) & 255)) * 0x100000001b3;
    return digest;
}

uint64_t listed_stamp(const char *dir) {
    static const char *const files[] = {".", "metrics.jsonl", "summary.json"};
    const int64_t moment = 2000000000; /* more than the step of any file system's clock */
    int64_t newest = 0;
    uint64_t digest = 0xcbf29ce484222325;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096];
        struct stat st = {0};
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        if (stat(path, &st) != 0) st = (struct stat){0};
        int64_t written = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        digest = listed_mix(listed_mix(listed_mix(digest, (uint64_t)written), (uint64_t)st.st_size), st.st_ino);
        if (written > newest) newest = written;
    }
    return newest > listed_now() - moment ? 0 : digest;
}

static int listed_by_name(const void *name, const void *row) {
    return strcmp(name, ((const struct listed *)row)->name);
}

const struct listed *listing_find(const struct listing *before, const char *name) {
    return before->count ? bsearch(name, before->of, (size_t)before->count, sizeof *before->of, listed_by_name) : NULL;
}

/* ---- rows ---- */

static const size_t listed_texts[] = {
    offsetof(struct listed, name),        offsetof(struct listed, dir),     offsetof(struct listed, reason),
    offsetof(struct listed, when),        offsetof(struct listed, run_id),  offsetof(struct listed, mode),
    offsetof(struct listed, weights),     offsetof(struct listed, verdict), offsetof(struct listed, remark.note),
    offsetof(struct listed, remark.tags),
};
enum { TEXTS = sizeof listed_texts / sizeof *listed_texts };

static const char **listed_text(const struct listed *r, int i) {
    return (const char **)(void *)((char *)(void *)(uintptr_t)r + listed_texts[i]);
}

enum error listed_copy(const struct listed *from, struct pool *pool, struct listed *to) {
    *to = *from;
    for (int i = 0; i < TEXTS; i++) {
        const char **text = listed_text(to, i);
        if (**text && !(*text = pool_printf(pool, "%s", *text))) return ERR_MEMORY;
    }
    return ERR_NONE;
}

/* Numbers are the same by their bits: what is not known stays so. */
static bool listed_same(const struct listed *a, const struct listed *b) {
    const double x[] = {a->loss, a->seconds, a->samples_per_s, a->best};
    const double y[] = {b->loss, b->seconds, b->samples_per_s, b->best};
    const int64_t n[] = {a->devices, a->steps, a->planned, a->best_step, a->done, a->wanted};
    const int64_t m[] = {b->devices, b->steps, b->planned, b->best_step, b->done, b->wanted};
    for (int i = 0; i < TEXTS; i++)
        if (strcmp(*listed_text(a, i), *listed_text(b, i)) != 0) return false;
    return a->state == b->state && a->experiment == b->experiment && a->best_is_loss == b->best_is_loss &&
           !memcmp(x, y, sizeof x) && !memcmp(n, m, sizeof n) && !memcmp(a->val_of, b->val_of, sizeof a->val_of);
}

void listing_version(const struct listing *before, struct listing *now) {
    int64_t version = listed_now() / 1000000;
    int kept = 0;
    if (version <= before->version) version = before->version + 1;
    now->version = before->version;
    now->since = before->since;
    for (int i = 0; i < now->count; i++) {
        struct listed *r = &now->of[i];
        const struct listed *was = listing_find(before, r->name);
        kept += was != NULL;
        r->changed = was && listed_same(was, r) ? was->changed : version;
        if (r->changed == version) now->version = version;
    }
    if (kept < before->count || !before->version) now->version = now->since = version; /* a row has gone */
}
