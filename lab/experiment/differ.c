/* In what two configurations differ. What is computed follows from the guarded settings alone: a pair that differs in
 * one of them compares two different trainings. */
#include "lab/experiment/experiment.h"
#include "modes/share/share.h"

#include <string.h>

/* Whether key is 'at' or stands below it. */
static bool differ_is_under(const char *key, const char *at) {
    size_t n = at ? strlen(at) : 0;
    return n > 0 && !strncmp(key, at, n) && (!key[n] || key[n] == '.' || key[n] == '[');
}

/* Whether key is the digest of a plug-in whose file one of these names, in the same section. */
static bool differ_is_digest(const char *key, const char *const *of) {
    static const char digest[] = ".sha256";
    size_t n = strlen(key), section = n - (sizeof digest - 1);
    if (n < sizeof digest || strcmp(key + section, digest) != 0) return false;
    for (; *of; of++)
        if (!strncmp(*of, key, section + 1)) return true;
    return false;
}

static bool differ_is_any(const char *key, const char *const *of) {
    for (; *of; of++)
        if (differ_is_under(key, *of)) return true;
    return false;
}

/* Whether a key says how gradients are shared. Its effect on losses is a question that an experiment may ask. */
static bool differ_is_sharing(const char *key) {
    for (const struct share_row *const *row = share_rows(); *row; row++)
        if (differ_is_under(key, (*row)->keys[0]) || differ_is_under(key, (*row)->keys[1])) return true;
    return false;
}

static bool differ_is_guarded(const char *key) {
    static const char *const guarded[] = {"model",     "loss",           "data",     "batch",  "train",
                                          "optimizer", "schedule",       "lr_scale", "seed",   "precision",
                                          "winograd",  "sync_batchnorm", "threads",  "inject", NULL};
    static const char *const free_of_it[] = {"optimizer.shard", "data.workers", "batch.accumulate", NULL};
    return (differ_is_any(key, guarded) && !differ_is_any(key, free_of_it)) || differ_is_sharing(key);
}

/* A device that is slow on purpose computes the same; ways to share gradients are what is compared. */
static bool differ_is_computing(const char *key) {
    return (differ_is_guarded(key) && !differ_is_under(key, "inject.slow") && !differ_is_sharing(key)) ||
           differ_is_under(key, "command");
}

bool setting_shares(const char *key) {
    static const char *const keys[] = {"mode", "devices", "comm", "dp", "ddp", "ps", "fsdp", "inject", NULL};
    return differ_is_any(key, keys);
}

bool settings_of_command(const struct result_setting *s, int n) {
    for (int i = 0; i < n; i++)
        if (differ_is_under(s[i].key, "command")) return true;
    return false;
}

int settings_differ(const struct experiment_cell *a, const struct experiment_cell *b, const char *const *asked,
                    struct setting_difference *out, int most) {
    static const char *const names[] = {"name", "log", "checkpoint.resume", NULL};
    int n = 0;
    bool command = settings_of_command(a->setting, a->nsettings);
    if (command != settings_of_command(b->setting, b->nsettings)) { /* nobody knows what the command's are */
        static const char *const whose[] = {"the engine", "an external command"};
        if (most > 0) out[n++] = (struct setting_difference){"command", whose[command], whose[!command], false, true};
        return n;
    }
    for (int side = 0; side < 2; side++) {
        const struct experiment_cell *mine = side ? b : a, *other = side ? a : b;
        for (int i = 0; i < mine->nsettings && n < most; i++) {
            const char *key = mine->setting[i].key, *value = mine->setting[i].value;
            const char *beside = result_setting_of(other->setting, other->nsettings, key);
            if (differ_is_any(key, names)) continue;
            if (asked && (differ_is_any(key, asked) || differ_is_digest(key, asked))) continue;
            if (side ? beside != NULL : beside && !strcmp(value, beside)) continue;
            if (!beside) beside = "";
            out[n++] = (struct setting_difference){key, side ? beside : value, side ? value : beside,
                                                   differ_is_guarded(key), differ_is_computing(key)};
        }
    }
    return n;
}
