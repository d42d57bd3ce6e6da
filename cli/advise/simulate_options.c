/* What 'engine simulate' is asked. */
#include "cli/advise/simulate.h"

#include "engine/base/plugin.h"
#include "engine/base/text.h"
#include "modes/share/share.h"

#include <string.h>

/* ---- values --------------------------------------------------------------------------------- */

static enum error simulate_read_devices(const char *value, void *out) {
    struct simulate_options *o = out;
    return list_numbers(value, false, SIMULATE_DEVICES, o->devices, &o->ndevices);
}

static enum error simulate_read_buckets(const char *value, void *out) {
    struct simulate_options *o = out;
    return list_numbers(value, true, (int64_t)1 << 40, o->buckets, &o->nbuckets);
}

static enum error simulate_read_link(const char *value, void *out) {
    struct simulate_options *o = out;
    o->linked = list_wire(value, &o->outside);
    return o->linked ? ERR_NONE : ERR_USAGE;
}

static enum error simulate_read_inside(const char *value, void *out) {
    struct simulate_options *o = out;
    o->insided = list_wire(value, &o->inside);
    return o->insided ? ERR_NONE : ERR_USAGE;
}

/* SHARE:FACTOR, as in 0.05:3 */
static enum error simulate_read_straggler(const char *value, void *out) {
    struct simulate_options *o = out;
    char share[64];
    size_t n = strcspn(value, ":");
    snprintf(share, sizeof share, "%.*s", (int)n, value);
    bool right = value[n] && n < sizeof share && text_real(share, &o->slow_share) &&
                 text_real(value + n + 1, &o->slow_by) && o->slow_share >= 0 && o->slow_share <= 1 && o->slow_by >= 1;
    return right ? ERR_NONE : ERR_USAGE;
}

static bool simulate_knows(const struct mode_row *mode) {
    return mode->place != PLACE_ALONE;
}

static enum error simulate_read_modes(const char *list, void *out) {
    struct simulate_options *o = out;
    char word[64];
    int n, given = 0;
    const struct mode_row *const *modes = mode_kinds(&n);
    memset(o->modes, 0, sizeof o->modes);
    o->named = true;
    while (list_word(&list, word)) {
        int m = 0;
        while (m < n && (!simulate_knows(modes[m]) || strcmp(word, modes[m]->name) != 0)) m++;
        if (m == n) return ERR_USAGE;
        o->modes[m] = true, given++;
    }
    return given && !*list ? ERR_NONE : ERR_USAGE;
}

static enum error simulate_read_scheme(const char *value, void *out) {
    struct simulate_options *o = out;
    o->algorithm = true;
    o->all_schemes = !strcmp(value, "all");
    o->scheme = scheme_find(value);
    if (plugin_is_path(value)) {
        o->scheme = SCHEME_OWN, o->own = value;
        return ERR_NONE;
    }
    bool right = scheme_is_known(o->scheme) || o->all_schemes || !strcmp(value, "auto");
    return right ? ERR_NONE : ERR_USAGE;
}

/* ---- the table ------------------------------------------------------------------------------ */

#undef AT
#define AT(member) offsetof(struct simulate_options, member)
const struct option simulate_table[] = {
    {"CONFIG | RUN_DIR", NULL, "a run; the step of a configuration is measured first, on one device", CONFIG_STRING,
     AT(path), .one = "configuration or run"},
    {"--devices", "LIST", "2,4,8, or 1..64 for the powers of two between (default: 1 to 4096)",
     .read = simulate_read_devices, .wants = "numbers from 1 to 4096, such as 2,4,8 or 1..64"},
    {"--link", "RATE[,LATENCY]",
     "rate and latency of a host's port, in each direction (default: as the configuration emulates, or 10Gbit,20us)",
     .read = simulate_read_link, .wants = "RATE or RATE,LATENCY, as in 10Gbit,20us"},
    {"--mode", "LIST", "modes of several devices, such as dp,ddp (default: all; pipeline where it is configured)",
     .read = simulate_read_modes, .choices = "dp|ddp|ps|dp,ddp",
     .wants = "one or more of dp, ddp, ps, fsdp and pipeline, such as dp,ddp"},
    {"--algorithm", "NAME",
     "algorithm of ddp: auto (default, but for a plug-in that is configured), a name of comm.algorithm, a plug-in's "
     "path, or all",
     .read = simulate_read_scheme,
     .wants = "auto, all, star, ring, tree, halving_doubling, hierarchical, direct, or a plug-in: ./mine.py"},
    {"--server", "NAME", "server of dp: shared, dedicated, sharded or all (default: as configured)", CONFIG_ENUM,
     AT(server), .choices = "shared|dedicated|sharded|all"},
    {"--buckets", "LIST", "sizes of buckets, such as 64KB,1MB,25MB (default: as configured)",
     .read = simulate_read_buckets, .wants = "sizes, as in 64KB,1MB,25MB"},
    {"--overlap", "on|off", "gradients leave while backward still computes (default: as configured)", CONFIG_ENUM,
     AT(overlap), .choices = "off|on"},
    {"--bench", "FILE",
     "fits the port's rate and latency to measurements of engine bench comm --json; in place of --link", CONFIG_STRING,
     AT(bench)},
    {"--per-host", "N", "number of devices on a host, which share its port (default 1)", CONFIG_INT, AT(per_host), 1,
     SIMULATE_DEVICES},
    {"--inside", "RATE[,LATENCY]",
     "link between devices of a host that cannot read each other's memory (default: they can, at 64Gbit)",
     .read = simulate_read_inside, .wants = "RATE or RATE,LATENCY, as in 200Gbit,1us"},
    {"--per-rack", "N", "number of hosts in a rack (default 0: one switch for all)", CONFIG_INT, AT(per_rack), 0,
     SIMULATE_DEVICES},
    {"--oversubscription", "X", "a rack's port has 1/X of the rate of its hosts' (default 1)", CONFIG_REAL,
     AT(oversubscription), 1, -1},
    {"--straggler", "P:X", "with probability P, a device is X times slower in a step", .read = simulate_read_straggler,
     .wants = "SHARE:FACTOR, as in 0.05:3"},
    {"--seed", "N", "which ones", CONFIG_INT, AT(seed), 0, -1},
    {"--steps", "N", "number of steps to replay (default: 1; 20 with stragglers, 3 beyond 256 devices)", CONFIG_INT,
     AT(steps), 1, 1000000},
    {"--scaling", "weak|strong",
     "weak (default): every device has as much to do as in the configuration; strong: all devices share its batch",
     CONFIG_ENUM, AT(strong), .choices = "weak|strong"},
    {"--cores", "N", "all devices share N cores, as when one machine emulates the links (default 0: each has its own)",
     CONFIG_INT, AT(cores), 0, 1 << 20},
    {"--quantile", "Q",
     "quantile of the times of the run's steps that counts as typical: 0.5 (default) is the median; choose a lower one "
     "if other programs disturbed the run",
     CONFIG_REAL, AT(quantile), 0, 1},
    OPTION_SET(config, "changes one key of the configuration"),
    OPTION_JSON("one JSON object on standard output"),
    {0}};

const struct simulate_options simulate_standard = {.modes = {true, true, true, true, true, true, true, true},
                                                   .scheme = SCHEMES,
                                                   .server = -1,
                                                   .overlap = -1,
                                                   .per_host = 1,
                                                   .oversubscription = 1,
                                                   .slow_by = 1,
                                                   .quantile = 0.5,
                                                   .inside = {1e-6, 1 / 8e9}};
