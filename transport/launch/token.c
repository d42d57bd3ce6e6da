#include "transport/launch/token.h"

#include "engine/base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum error secret_read_file(struct pool *pool, const char *path, const char **out) {
    char *text;
    size_t n;
    struct stat st;
    if (stat(path, &st) == 0 && st.st_mode & (S_IRWXG | S_IRWXO))
        return FAIL(ERR_CONFIG, "token: others may read '%s'\nchmod 600 it", path);
    TRY(file_read(path, SECRET_MAX + 2, pool, &text, &n)); /* a line may end */
    text[strcspn(text, "\r\n")] = '\0';
    *out = text;
    return *text ? ERR_NONE : FAIL(ERR_CONFIG, "token: '%s' is empty", path);
}

/* The variable that spec names, or NULL. */
static const char *spec_variable(const char *spec) {
    return !strcmp(spec, "auto") ? TOKEN_VARIABLE : !strncmp(spec, "env:", 4) ? spec + 4 : NULL;
}

static enum error secret_read_variable(const char *spec, const char **out) {
    const char *name = spec_variable(spec);
    *out = getenv(name);
    if (strcmp(spec, "auto") != 0 && (!*out || !**out))
        return FAIL(ERR_CONFIG,
                    "run.token is env:%s, but %s is not set\nexport the run's secret in it, as for the run's first "
                    "start: it is in no file of the run",
                    name, name);
    if (!*out) *out = "";
    return ERR_NONE;
}

static enum error secret_check_length(const char *secret) {
    size_t n = strlen(secret);
    if (n > SECRET_MAX) return FAIL(ERR_CONFIG, "token: longer than %d characters", SECRET_MAX);
    if (n >= SECRET_MIN) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "the run's secret has %zu characters, which can be guessed: at least %d\n"
                "openssl rand -hex 16 makes a good one",
                n, SECRET_MIN);
}

enum error token_find(const char *spec, struct pool *pool, const char **out) {
    *out = spec;
    if (!strcmp(spec, "none")) return ERR_NONE;
    if (!strncmp(spec, "file:", 5))
        TRY(secret_read_file(pool, spec + 5, out));
    else if (spec_variable(spec))
        TRY(secret_read_variable(spec, out));
    if (!**out) return ERR_NONE;
    TRY(secret_check_length(*out));
    *out = pool_printf(pool, SECRET_CHOSEN "%s", *out);
    return *out ? ERR_NONE : ERR_MEMORY;
}

enum error token_inherited(struct pool *pool, const char **out) {
    const char *given = getenv(TOKEN_VARIABLE);
    *out = pool_printf(pool, "%s", given ? given : "");
    token_forget("auto");
    return *out ? ERR_NONE : ERR_MEMORY;
}

void token_forget(const char *spec) {
    const char *name = spec_variable(spec);
    char *value = name ? getenv(name) : NULL;
    if (!value) return;
    explicit_bzero(value, strlen(value));
    unsetenv(name);
}
