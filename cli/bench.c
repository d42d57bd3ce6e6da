/* engine bench: how fast the parts of the engine are on this machine. */
#include "cli/bench.h"

#include <string.h>

static int bench_run(int argc, char **argv) {
    if (argc < 2) return cli_usage(&command_bench, "what is to be measured?");
    if (strcmp(argv[1], "comm"))
        return cli_usage(&command_bench, "'%s' cannot be measured", argv[1]);
    return bench_comm_run(argc - 1, argv + 1);
}

const struct command command_bench = {
    .name = "bench",
    .arguments = "comm [OPTION VALUE]... [--json | --csv]",
    .summary = "measures collectives, and fits what a message and a byte cost",
    .help =
        "  --collective C   all_reduce (default), reduce, broadcast, reduce_scatter, all_gather,\n"
        "                   scatter, gather, all_to_all, send_recv (to the next rank)\n"
        "  --link L         shm (default; processes), thread, or another of 'engine version\n"
        "                   --features', over loopback\n"
        "  --algorithm A    auto (default), all that can, or a name\n"
        "  --order O        tree or ring, in which ranks' elements are added; default: tree where\n"
        "                   the algorithm can\n"
        "  --ranks N        2 is the default, 64 the most\n"
        "  --from, --to S   sizes of the whole buffer: 1KB to 64MB by default\n"
        "  --factor F       from one size to the next; 4 by default\n"
        "  --type T, --op O of elements, f32 and sum by default\n"
        "  --iters N        calls a size; default: as many as fit in --seconds (0.2)\n"
        "  --emulate E      bandwidth=1Gbit,latency=50us: a port for each rank\n"
        "  --json, --csv    instead of the table\n"
        "algbw is size/time; busbw counts the bytes that cross each rank's port, as nccl-tests\n"
        "does. wrong: elements with another value than expected. model: alpha + beta * size,\n"
        "fitted to all sizes by relative least squares.\n",
    .run = bench_run,
};
