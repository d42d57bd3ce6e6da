#include "modes/place/facts.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/settings/run_config.h"

#include <stdio.h>

/* The program file itself: two builds of one version may still compute differently. */
static enum error digest_program(struct pool *pool, char out[SHA256_TEXT]) {
    char *bytes;
    size_t n;
    struct sha256 h;
    TRY(file_read("/proc/self/exe", 1 << 30, pool, &bytes, &n));
    sha256_init(&h);
    sha256_update(&h, bytes, n);
    sha256_hex(h, out);
    return ERR_NONE;
}

enum error facts_find(const struct job *job, struct facts *f) {
    const struct run_config *c = &job->settings->config;
    struct pool *pool;
    TRY(pool_create(&pool));
    enum error err = digest_program(pool, f->build);
    pool_free(pool);
    if (!err) err = job_list_keys(job, &f->keys);
    f->build[16] = '\0'; /* is as telling */
    snprintf(f->threads, sizeof f->threads, "%lld", (long long)c->threads);
    f->of[0] = (struct fact){"program", f->build};
    f->of[1] = (struct fact){"kind of devices", c->devices.kind};
    f->of[2] = (struct fact){"number of threads a device", f->threads};
    f->count = OWN_FACTS - 1;
    for (int i = 0; !err && i < f->keys.count; i++) f->of[f->count++] = (struct fact){f->keys.name[i], f->keys.text[i]};
    f->of[f->count++] = (struct fact){"content of the data", job->data_digest};
    return err;
}
