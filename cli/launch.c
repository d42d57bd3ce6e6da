/* engine launch: starts a program of your own N times, as ranks of one group (engine/engine.h), and
 * watches them as 'engine run' watches its own. */
#include "cli/cli.h"

#include "engine/base/limits.h"
#include "engine/base/text.h"
#include "transport/launch/launch.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_launch;

static int read_count(const char *text) {
    int64_t n;
    return text && text_int(text, &n) && n >= 1 && n <= RANKS_MAX ? (int)n : 0;
}

static int exit_code(enum error err, const struct launch_result *r) {
    if (r->first < 0) return err ? cli_fail(err) : r->exit_code;
    if (err) return cli_fail(err);
    fprintf(stderr, "error: rank %d ended with code %d; the others were ended %.2f s later\n",
            r->first, r->exit_code, r->seconds);
    return r->exit_code;
}

static int launch_run(int argc, char **argv) {
    int size = 0, at = 1;
    for (; at < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "-n") && strcmp(argv[at], "--nproc-per-node"))
            return cli_usage(&command_launch, "unknown option '%s'", argv[at]);
        size = read_count(at + 1 < argc ? argv[at + 1] : NULL);
        if (!size)
            return cli_usage(&command_launch, "%s needs a number of processes from 1 to %d",
                             argv[at], RANKS_MAX);
    }
    if (!size) return cli_usage(&command_launch, "how many processes? (-n N)");
    if (at >= argc) return cli_usage(&command_launch, "which program?");
    struct launch_params p = {.size = size,
                              .program = argv[at],
                              .argv = (const char *const *)(argv + at),
                              .log = stdout,
                              .grace = 5};
    struct launch_result result = {.first = -1};
    enum error err = meeting_create_shared(size, &p.meeting);
    if (err) return cli_fail(err);
    err = launch_processes(&p, &result);
    meeting_free(p.meeting);
    return exit_code(err, &result);
}

const struct command command_launch = {
    .name = "launch",
    .arguments = "-n N PROGRAM [ARGUMENT]...",
    .summary = "starts a program of your own as N ranks (RANK, WORLD_SIZE, LOCAL_RANK are set)",
    .help = "  -n N             processes, from 1 to " LIMIT_TEXT(
        RANKS_MAX) " (also --nproc-per-node)\n",
    .run = launch_run,
};
