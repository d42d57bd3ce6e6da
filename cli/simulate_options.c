/* What 'engine simulate' is asked. */
#include "cli/simulate.h"

#include "engine/base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- values --------------------------------------------------------------------------------- */

/* The words between commas, one after another. */
static bool next_word(const char **list, char word[64]) {
    size_t n = strcspn(*list, ",");
    if (!**list || n >= 64) return false;
    memcpy(word, *list, n);
    word[n] = '\0';
    *list += n + ((*list)[n] == ',');
    return true;
}

static bool take_numbers(const char *list, bool bytes, int64_t most, int64_t *out, int *count) {
    char word[64];
    *count = 0;
    while (next_word(&list, word)) {
        int64_t n;
        if (*count == LIST_MOST || !(bytes ? text_bytes(word, &n) : text_int(word, &n)))
            return false;
        if (n < 1 || n > most) return false;
        out[(*count)++] = n;
    }
    return *count > 0 && !*list;
}

/* RATE or RATE,LATENCY */
static bool take_wire(const char *value, struct wire *out) {
    char word[64];
    double rate;
    *out = (struct wire){0, 0};
    if (!next_word(&value, word)) return false;
    if (strcmp(word, "unlimited") != 0) {
        if (!text_rate(word, &rate) || !(rate > 0)) return false;
        out->beta = 1 / rate;
    }
    if (!next_word(&value, word)) return !*value;
    return text_seconds(word, &out->alpha) && out->alpha >= 0 && !*value;
}

/* SHARE:FACTOR, as in 0.05:3 */
static bool take_straggler(const char *value, struct simulate_options *o) {
    char word[64];
    const char *colon = strchr(value, ':');
    if (!colon || colon - value >= 64) return false;
    memcpy(word, value, (size_t)(colon - value));
    word[colon - value] = '\0';
    return text_real(word, &o->slow_share) && text_real(colon + 1, &o->slow_by) &&
           o->slow_share >= 0 && o->slow_share <= 1 && o->slow_by >= 1;
}

static bool take_modes(const char *list, struct simulate_options *o) {
    char word[64];
    o->modes[0] = o->modes[1] = false;
    while (next_word(&list, word)) {
        bool dp = !strcmp(word, "dp");
        if (!dp && strcmp(word, "ddp") != 0) return false;
        o->modes[dp ? 0 : 1] = true;
    }
    return (o->modes[0] || o->modes[1]) && !*list;
}

static bool take_scheme(const char *value, struct simulate_options *o) {
    o->all_schemes = !strcmp(value, "all");
    o->scheme = scheme_find(value);
    return scheme_is_known(o->scheme) || o->all_schemes || !strcmp(value, "auto");
}

static bool take_server(const char *value, struct simulate_options *o) {
    static const char *const names[] = {"shared", "dedicated", "sharded"};
    o->all_servers = !strcmp(value, "all");
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, names[i])) o->server = i;
    return o->all_servers || o->server >= 0;
}

static bool take_word(const char *value, const char *yes, const char *no, bool *out) {
    *out = !strcmp(value, yes);
    return *out || !strcmp(value, no);
}

static bool take_number(const char *value, int64_t least, int64_t most, int64_t *out) {
    return text_int(value, out) && *out >= least && *out <= most;
}

/* ---- options -------------------------------------------------------------------------------- */

#define OPTIONS(X)                                                                                 \
    X("--devices", "numbers from 1 to 4096, as in 2,4,8",                                          \
      take_numbers(value, false, SIMULATE_DEVICES, o->devices, &o->ndevices))                      \
    X("--mode", "dp, ddp or dp,ddp", take_modes(value, o))                                         \
    X("--algorithm", "auto, all, star, ring, tree, halving_doubling, hierarchical or direct",      \
      take_scheme(value, o))                                                                       \
    X("--server", "shared, dedicated, sharded or all", take_server(value, o))                      \
    X("--buckets", "sizes, as in 64KB,1MB,25MB",                                                   \
      take_numbers(value, true, (int64_t)1 << 40, o->buckets, &o->nbuckets))                       \
    X("--overlap", "on or off", take_word(value, "on", "off", &flag) && (o->overlap = flag, true)) \
    X("--link", "RATE or RATE,LATENCY, as in 10Gbit,20us",                                         \
      take_wire(value, &o->outside) && (o->linked = true))                                         \
    X("--bench", "a file of 'engine bench comm --json'", (o->bench = value) != NULL)               \
    X("--inside", "RATE or RATE,LATENCY, as in 200Gbit,1us",                                       \
      take_wire(value, &o->inside) && (o->insided = true))                                         \
    X("--per-host", "a number from 1 on", take_number(value, 1, SIMULATE_DEVICES, &o->per_host))   \
    X("--per-rack", "a number from 0 on", take_number(value, 0, SIMULATE_DEVICES, &o->per_rack))   \
    X("--oversubscription", "a number from 1 on",                                                  \
      text_real(value, &o->oversubscription) && o->oversubscription >= 1)                          \
    X("--straggler", "SHARE:FACTOR, as in 0.05:3", take_straggler(value, o))                       \
    X("--seed", "a number from 0 on", take_number(value, 0, INT64_MAX, &o->seed))                  \
    X("--steps", "a number from 1 on", take_number(value, 1, 1000000, &o->steps))                  \
    X("--quantile", "a number from 0 to 1",                                                        \
      text_real(value, &o->quantile) && o->quantile >= 0 && o->quantile <= 1)                      \
    X("--cores", "a number from 0 on", take_number(value, 0, 1 << 20, &o->cores))                  \
    X("--scaling", "weak or strong", take_word(value, "strong", "weak", &o->strong))

static int take_option(struct simulate_options *o, const char *name, const char *value) {
    bool flag;
    if (!strcmp(name, "--set")) {
        if (!value) return cli_usage(&command_simulate, "--set needs KEY=VALUE");
        return cli_set(&o->config, value) == ERR_NONE ? 0 : cli_fail(ERR_USAGE);
    }
#define X(option, form, taken)                                                                     \
    if (!strcmp(name, option)) {                                                                   \
        if (!value) return cli_usage(&command_simulate, "%s needs a value", name);                 \
        return (taken) ? 0                                                                         \
                       : cli_usage(&command_simulate, "%s is %s, not '%s'", name, form, value);    \
    }
    OPTIONS(X)
#undef X
    return cli_usage(&command_simulate, "unknown option '%s'", name);
}

int simulate_parse(int argc, char **argv, struct simulate_options *o) {
    *o = (struct simulate_options){.modes = {true, true},
                                   .scheme = SCHEMES,
                                   .server = -1,
                                   .overlap = -1,
                                   .per_host = 1,
                                   .oversubscription = 1,
                                   .slow_by = 1,
                                   .quantile = 0.5,
                                   .inside = {1e-6, 1 / 8e9}};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            o->json = true;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            int code = take_option(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            if (code) return code;
            i++;
        } else if (o->path) {
            return cli_usage(&command_simulate,
                             "one configuration or run at a time, got '%s' and '%s'", o->path,
                             argv[i]);
        } else {
            o->path = argv[i];
        }
    }
    if (o->bench && o->linked)
        return cli_usage(&command_simulate, "--link and --bench both say what ports are like");
    return 0;
}
