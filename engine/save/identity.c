/* Whether a checkpoint is of the experiment that is at hand: texts of "key=value\n" lines, which the manifest holds and the
 * run gives. */
#include "engine/save/checkpoint_impl.h"

#include <string.h>

struct words {
    const char *at;
    int n;
};

static bool words_equal(struct words a, struct words b) {
    return a.n == b.n && !strncmp(a.at, b.at, (size_t)a.n);
}

/* The value of a key in "key=value\n" lines. */
static struct words identity_get(const char *lines, struct words key) {
    for (const char *line = lines; *line;) {
        int all = (int)strcspn(line, "\n");
        if (all > key.n && !strncmp(line, key.at, (size_t)key.n) && line[key.n] == '=')
            return (struct words){line + key.n + 1, all - key.n - 1};
        line += all + (line[all] == '\n');
    }
    return (struct words){"not set", 7};
}

static const struct words data_key = {"data", 4};

/* What a message shows of a value: where it begins to differ from the other, and not too much. */
static struct words identity_excerpt(struct words a, struct words other) {
    int same = 0, before = 40, most = 200;
    while (same < a.n && same < other.n && a.at[same] == other.at[same]) same++;
    int skip = same > before && a.n > most ? same - before : 0, n = a.n - skip;
    return (struct words){a.at + skip, n < most ? n : most};
}

static enum error identity_refuse(const char *path, struct words key, struct words was, struct words is,
                                  const char *hint) {
    struct words old = identity_excerpt(was, is), new = identity_excerpt(is, was);
    return FAIL(ERR_CONFIG, "cannot resume from '%s': %.*s was '%.*s' when it was saved and is '%.*s' now\n%s", path,
                key.n, key.at, old.n, old.at, new.n, new.at, hint);
}

/* Of all keys but the section 'data', which may be another on purpose. */
static enum error identity_compare_keys(const char *path, const char *keys, const char *saved, const char *ours,
                                        const char *hint) {
    for (const char *line = keys; *line;) {
        size_t all = strcspn(line, "\n");
        struct words key = {line, (int)strcspn(line, "=\n")}, was = identity_get(saved, key),
                     is = identity_get(ours, key);
        if (!words_equal(key, data_key) && !words_equal(was, is)) return identity_refuse(path, key, was, is, hint);
        line += all + (line[all] == '\n');
    }
    return ERR_NONE;
}

enum error identity_check(const char *path, const char *saved, const char *ours) {
    static const char hint[] =
        "set it back, or start a new run; model.safetensors alone can be loaded as first weights";
    if (!ours) return ERR_NONE;
    TRY(identity_compare_keys(path, ours, saved, ours, hint));
    return identity_compare_keys(path, saved, saved, ours, hint);
}

/* What the data are called, by the section 'data' of the two identities, or hold. */
static const char data_hint[] = "restore the data, use only the weights in a new run (model: {init: PATH}), or "
                                "continue with the new data: checkpoint.data: any";

enum error identity_check_section(const char *path, const char *saved, const char *ours) {
    if (!ours) return ERR_NONE;
    struct words was = identity_get(saved, data_key), is = identity_get(ours, data_key);
    return words_equal(was, is) ? ERR_NONE : identity_refuse(path, data_key, was, is, data_hint);
}

/* What does not say what its data were cannot be compared. */
enum error identity_check_contents(const char *path, const char *saved, const char *ours) {
    return ours && *saved ? identity_compare_keys(path, ours, saved, ours, data_hint) : ERR_NONE;
}
