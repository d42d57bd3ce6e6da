#include "transport/launch/token.h"

#include "engine/base/file.h"
#include "transport/store/store.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

static enum error read_file(struct pool *pool, const char *path, const char **out) {
    char *text;
    size_t n;
    struct stat st;
    if (stat(path, &st) == 0 && st.st_mode & (S_IRWXG | S_IRWXO))
        return FAIL(ERR_CONFIG, "token: others may read '%s'\nchmod 600 it", path);
    TRY(file_read(path, STORE_TOKEN_MAX, pool, &text, &n));
    text[strcspn(text, "\r\n")] = '\0';
    *out = text;
    return *text ? ERR_NONE : FAIL(ERR_CONFIG, "token: '%s' is empty", path);
}

enum error token_find(const char *spec, struct pool *pool, const char **out) {
    if (!strncmp(spec, "file:", 5)) return read_file(pool, spec + 5, out);
    bool automatic = !strcmp(spec, "auto"), named = !strncmp(spec, "env:", 4);
    const char *name = named ? spec + 4 : TOKEN_VARIABLE;
    *out = automatic || named ? getenv(name) : spec;
    if (named && (!*out || !**out)) return FAIL(ERR_CONFIG, "token: %s is not set", name);
    if (!*out) *out = "";
    if (strlen(*out) <= STORE_TOKEN_MAX) return ERR_NONE;
    return FAIL(ERR_CONFIG, "token: longer than %d characters", STORE_TOKEN_MAX);
}

enum error token_random(struct pool *pool, const char **out) {
    uint64_t r[2];
    if (getrandom(r, sizeof r, 0) != sizeof r) return FAIL(ERR_IO, "no random numbers for a token");
    *out = pool_printf(pool, "%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
    return *out ? ERR_NONE : ERR_MEMORY;
}
