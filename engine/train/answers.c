/* Which validation samples the last evaluation classified rightly, for those who compare two runs sample by sample:
 * RUN/validation.safetensors. Each sample is counted by the rank that has its shard, as a bit in numbers that a double
 * holds exactly; nobody else has that bit, so the sum over the ranks is all of them, at any number of devices. */
#include "engine/save/checkpoint.h"
#include "engine/settings/inject_config.h"
#include "engine/tell/score.h"
#include "engine/train/internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BITS = 48 }; /* of a number */
struct answers {
    int64_t samples, words;
    double word[];
};

enum error answers_open(struct trainer *t) {
    const struct dataset *d = t->feed.val;
    bool repeats = inject_mistake(t->config) == MISTAKE_PADDED_EVAL; /* some samples, on several ranks */
    if (d->labels != 1 || !d->classes || repeats) return ERR_NONE;
    int64_t words = (d->size + BITS - 1) / BITS;
    TRY_MEMORY(t->answers = memory_new(sizeof(struct answers) + (size_t)words * sizeof(double)));
    *t->answers = (struct answers){d->size, words};
    return ERR_NONE;
}

void answers_close(struct trainer *t) {
    memory_free(t->answers);
}

void answers_begin(struct answers *a) {
    memset(a->word, 0, (size_t)a->words * sizeof *a->word);
}

void answers_take(struct answers *a, const struct shard *s, int64_t classes, const float *y) {
    for (int64_t i = 0; i < s->n; i++, y += classes)
        if (score_best(y, classes) == s->labels[i]) a->word[s->ids[i] / BITS] += ldexp(1, (int)(s->ids[i] % BITS));
}

static enum error write_file(const struct trainer *t, const char *path) {
    const struct answers *a = t->answers;
    char data[16], step[32];
    uint32_t digest, crc;
    int64_t bytes;
    TRY(data_val_digest(t, &digest));
    snprintf(data, sizeof data, "%08x", digest);
    snprintf(step, sizeof step, "%lld", (long long)t->at.step);
    unsigned char *right = memory_new((size_t)a->samples);
    if (!right) return ERR_MEMORY;
    for (int64_t i = 0; i < a->samples; i++) right[i] = (int64_t)a->word[i / BITS] >> i % BITS & 1;
    const struct st_tensor tensor = {
        .name = "right", .dtype = "BOOL", .ndim = 1, .dim = {a->samples}, .data = right, .bytes = (size_t)a->samples};
    enum error err =
        st_write(path, &tensor, 1, (const char *const[][2]){{"data", data}, {"step", step}, {NULL}}, &crc, &bytes);
    memory_free(right);
    return err;
}

enum error answers_conclude(struct trainer *t, bool measured) {
    char path[4096];
    if (measured && t->answers) TRY(t->job->mode->step->sum(t->mode, t->answers->word, (int)t->answers->words));
    if (t->rank > 0) return ERR_NONE;
    snprintf(path, sizeof path, "%s/validation.safetensors", t->job->run_dir);
    if (unlink(path) != 0 && errno != ENOENT) return FAIL(ERR_CREATE, "cannot replace '%s': %s", path, strerror(errno));
    return measured && t->answers ? write_file(t, path) : ERR_NONE;
}
