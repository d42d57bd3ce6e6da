/* engine advise: which way of sharing gradients is better here, and why. */
#include "cli/advise/advise.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/tell/environment.h"
#include "engine/train/stop.h"

#include <stdarg.h>
#include <string.h>

void advising_progress(const struct advising *g, const char *fmt, ...) {
    char text[512];
    va_list args;
    if (g->o->quiet) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(stderr, "%s\n", text_defuse(text, ""));
}

/* ---- what it rests on ----------------------------------------------------------------------- */

static void advise_put_notes(struct advising *g) {
    struct advise_notes *notes = &g->advice.notes;
    const struct run_config *c = &g->settings.config;
    char memory[32];
    bool one = g->ask.weak; /* device's, else all of them */
    advise_note(notes, "%s %lld samples; a device is a %s with %lld thread%s and %s; %s.",
                one ? "Each device has" : "All devices share a batch of",
                (long long)(one ? c->batch.size / c->devices.count : c->batch.size), c->devices.kind,
                (long long)c->threads, c->threads == 1 ? "" : "s", text_of_bytes(g->ask.memory, memory),
                g->ports ? g->ports : "nothing is sent");
    if (g->ask.cores)
        advise_note(notes, "All devices belong to this machine, which runs %d at once; more devices take turns.",
                    g->ask.cores);
    if (g->emulated)
        advise_note(notes, "Each device has a port of its own. dp is one process on one host: over real ports between "
                           "hosts it cannot run, the other modes can.");
    for (int i = 0; i < g->notes.n; i++) advise_note(notes, "%s", g->notes.text[i]);
    advise_note(
        notes,
        "Another precision computes other numbers, and ring adds in an order that depends on the devices: both are "
        "another training. All other ways give the same bits, on at most as many devices as there are shards.");
    advise_note(notes,
                "Computing is assumed to shrink with a device's share of the batch. Compressed gradients and stale "
                "servers are not simulated, and averaged weights are another training: they are not among the "
                "ways.");
    advise_note(notes, "These are simpler, in this order: fewer devices; the configured precision; single, dp's shared "
                       "server, ddp, dp's sharded server, optimizer.shard, dp's dedicated server, ps, fsdp, pipeline; "
                       "no named algorithm; buckets as configured.");
}

/* ---- showing -------------------------------------------------------------------------------- */

static enum error advising_show(const struct advising *g) {
    const struct advise_options *o = g->o;
    struct report *r = pool_alloc(g->pool, sizeof *r);
    struct json j = {0};
    double bytes;
    if (!r) return ERR_MEMORY;
    TRY(advise_report(&g->advice, r));
    TRY(o->json ? cli_json(advise_json(&g->advice, &j), &j, stdout) : report_write(r, REPORT_TXT, stdout));
    return o->out ? report_save(r, report_format_of(o->out), o->out, &bytes) : ERR_NONE;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* Notes a load of the machine by other programs: it lengthens the steps of two devices more than those of one. */
static void advise_look_round(struct advising *g) {
    double load[LOADS];
    int cores = device_host_cores();
    if (environment_load(load) && load[0] > 0.5 * cores)
        advise_note(
            &g->notes,
            "The load average was %.1f on %d core%s when this began: other programs have disturbed the measurement.",
            load[0], cores, cores == 1 ? "" : "s");
}

static enum error advise_in(struct advising *g) {
    advise_look_round(g);
    TRY(advise_measure(g));
    advising_progress(g, "simulating up to %lld devices", (long long)g->ask.devices[g->ask.ndevices - 1]);
    TRY(advise_decide(&g->ask, g->pool, &g->advice));
    advise_put_notes(g);
    TRY(advise_check_here(g));
    return advising_show(g);
}

static enum error advising_run(struct advising *g) {
    char *dir;
    TRY(file_make_temporary("advise", g->pool, &dir));
    g->dir = dir;
    enum error err = advise_in(g);
    for (int i = 0; i < g->nsources; i++) step_source_close(&g->source[i]);
    run_settings_free(&g->settings);
    return step_source_clear(err, dir);
}

static int advise_command(const struct cli *cli) {
    struct advise_options *o = cli->options;
    struct advising g = {.o = o, .pool = cli->pool, .notes.pool = cli->pool, .config = o->config};
    g.config.path = o->path;
    if (o->out && report_format_of(o->out) >= REPORT_SVG)
        return cli_usage(cli, "-o %s: a name that ends in .html, .md or .txt", o->out);
    stop_install();
    enum error err = advising_run(&g);
    if (stop_signal()) return stop_exit_code(stop_signal());
    return g.printed ? error_exit_code(err) : cli_end(err);
}

/* ---- options -------------------------------------------------------------------------------- */

static enum error advise_read_devices(const char *value, void *out) {
    struct advise_options *o = out;
    return list_numbers(value, false, SIMULATE_DEVICES, o->devices, &o->ndevices);
}

static enum error advise_read_link(const char *value, void *out) {
    struct advise_options *o = out;
    o->linked = strcmp(value, "auto") != 0;
    return !o->linked || list_wire(value, &o->link) ? ERR_NONE : ERR_USAGE;
}

static enum error advise_read_memory(const char *value, void *out) {
    struct advise_options *o = out;
    return text_bytes(value, &o->memory) && o->memory > 0 ? ERR_NONE : ERR_USAGE;
}

#undef AT
#define AT(member) offsetof(struct advise_options, member)
static const struct option options[] = {
    {"CONFIG", NULL, "the configuration to be trained", CONFIG_STRING, AT(path), .one = "configuration"},
    {"--devices", "LIST",
     "2,4,8, or 1..64 for the powers of two between; default: up to 64, or the devices of this machine if its own "
     "links are measured",
     .read = advise_read_devices, .wants = "numbers from 1 to 4096, such as 2,4,8 or 1..64"},
    {"--link", "auto|RATE[,LATENCY]",
     "rate and latency of each device's port, in each direction; auto (default): as the configuration emulates, or "
     "this machine's links, which are measured",
     .read = advise_read_link, .wants = "auto, RATE or RATE,LATENCY, as in 10Gbit,50us"},
    {"--memory", "SIZE", "memory of a device, such as 16GB; default: that of a device of this machine",
     .read = advise_read_memory, .wants = "a size, as in 16GB"},
    {"--scaling", "strong|weak",
     "strong (default): all devices share the configuration's batch; weak: every device has as much to do as in the "
     "configuration",
     CONFIG_ENUM, AT(weak), .choices = "strong|weak"},
    {"-o", "FILE", "also writes the advice into a file, whose ending is the format: .html, .md or .txt", CONFIG_STRING,
     AT(out), .wants = "the name of a file", .also = "--output"},
    OPTION_SET(config, "changes one key of the configuration"),
    {"--json", NULL, "one JSON object on standard output", CONFIG_BOOL, AT(json)},
    {"--quiet", NULL, "no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {0}};

const struct command command_advise = {
    .name = "advise",
    .summary = "reports which way of sharing gradients is better here, and why",
    .options = options,
    .notes = "It measures a step and links for some seconds, simulates every mode, algorithm, size of\n"
             "buckets and precision, and runs the ways that it can run here, to measure the error of its predictions.\n"
             "Exit codes: 0; 64 usage; 66 no such file; 69 no such device; 75 too slow to be measured;\n"
             "78 bad configuration, or nothing fits; those of a run that failed; 130/143 stopped\n",
    .size = sizeof(struct advise_options),
    .run = advise_command,
};
