/* engine check: tries a plug-in, which it builds where it is a source, on all that the engine's own parts must do. */
#include "lab/check/check.h"
#include "cli/line/end.h"
#include "cli/line/options.h"
#include "lab/process/compile.h"

#include <math.h>
#include <stdio.h>

struct check_options {
    const char *file;
    double timeout;
    int64_t sizes, seed;
    bool json;
};
#define OPTIONS_STRUCT struct check_options

static void check_describe(const struct plugin *p) {
    const struct engine_plugin *of = p->of;
    printf("%s: %s\nsha256 %s\n", p->path, of->about ? of->about : "says nothing about itself", p->digest);
    for (int i = 0; i < plugin_parameters(of); i++)
        printf("parameter %s, by default %g%s%s\n", of->parameters[i].name, of->parameters[i].standard,
               of->parameters[i].about ? ": " : "", of->parameters[i].about ? of->parameters[i].about : "");
    if (of->algorithm && !of->algorithm->plan) printf("no plan: its bytes are held to nothing\n");
}

static enum error check_put_json(const struct plugin *p, const struct check *c) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_put(&j, JSON_TEXT("file", p->path), JSON_TEXT("sha256", p->digest), JSON_INT("passed", c->passed),
             JSON_INT("wrong", c->wrong), JSON_TEXT("first", c->wrong ? c->first : NULL));
    if (p->of->share) json_put(&j, JSON_REAL("left", c->wrong ? (double)NAN : c->left));
    if (p->of->schedule) json_put(&j, JSON_REAL("cost", c->wrong ? (double)NAN : c->cost));
    if (p->of->schedule && p->of->schedule->stage) json_put(&j, JSON_REAL("held", c->wrong ? (double)NAN : c->held));
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, stdout);
}

/* By its plan, of one in C as of one in Python. */
static enum error check_put_cost(const struct plugin *p, int sizes) {
    for (int ranks = 2; ranks <= 8 && ranks <= sizes; ranks *= 2) {
        double latencies, buffers;
        TRY(check_cost(p->path, ranks, &latencies, &buffers));
        printf("%d ranks: n bytes take %g latencies and %.4g n through a port\n", ranks, latencies, buffers);
    }
    return ERR_NONE;
}

static enum error check_put_measured(const struct plugin *p, const struct check *c) {
    if (p->of->share)
        printf("of the differences between %d ranks %d meetings leave %.3g %%\n", SHARE_RANKS, SHARE_MEETINGS,
               100 * c->left);
    if (p->of->schedule) printf("its cost is up to %.4g times the least possible\n", c->cost);
    if (c->held > 0) printf("it holds up to %.4g times the fewest activations\n", c->held);
    if (p->of->algorithm) TRY(check_put_cost(p, c->sizes));
    printf("all %d cases are right\n", c->passed);
    return ERR_NONE;
}

static int check_run(const struct cli *cli) {
    const struct check_options *o = cli->options;
    const char *file = o->file;
    const struct plugin *p;
    enum error err = compile_is_source(file) ? compile_plugin(file, cli->pool, &file) : ERR_NONE;
    if (err == ERR_NONE) err = plugin_open(file, PLUGIN_ANY, NULL, &p);
    if (err != ERR_NONE) return cli_end(err);
    struct check c = {p->path, .out = o->json ? NULL : stdout, .timeout = o->timeout, .sizes = (int)o->sizes,
                      .seed = o->seed};
    if (!o->json) check_describe(p);
    err = check_plugin(&c);
    if (o->json && (err == ERR_NONE || c.wrong)) {
        enum error put = check_put_json(p, &c);
        if (put != ERR_NONE) err = put;
    } else if (err == ERR_NONE) {
        err = check_put_measured(p, &c);
    }
    return cli_end(err);
}

static const struct option options[] = {
    {"FILE", NULL, "the shared object, or its source: FILE.c is built into FILE.so beside it; or FILE.py",
     CONFIG_STRING, AT(file), .missing = "which plug-in?", .one = "file"},
    {"--timeout", "SECONDS", "how long a rank may wait, or stay in the plug-in; 2 by default", CONFIG_SECONDS,
     AT(timeout), 0.1, 3600},
    {"--sizes", "N", "groups of 1 to N ranks are tried; 17 by default", CONFIG_INT, AT(sizes), 1, CHECK_SIZES},
    {"--seed", "N", "draws what a schedule is tried on; 1 by default", CONFIG_INT, AT(seed), 0, -1},
    OPTION_JSON("how many cases passed and are wrong, and the first finding, on standard output"),
    {0}};

const struct command command_check = {
    .name = "check",
    .summary = "tries a plug-in of your own: values, bits, bytes, failures, memory",
    OPTIONS(options),
    .standard = &(const struct check_options){.timeout = 2, .sizes = CHECK_SIZES, .seed = 1},
    .notes =
        "It runs the plug-in's code, each case in a process of its own, whose ranks are threads. A source is built "
        "by\n" COMPILE_LINE " -Wall -o FILE.so FILE.c -lm\nwith engine_plugin.h on the include path.\n"
        "Exit codes: 0; 1 something is wrong; 65 the source does not compile; 66 no such file;\n69 no compiler; "
        "78 no plug-in\n",
    .run = check_run,
};
