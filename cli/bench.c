/* engine bench: how fast the parts of the engine are on this machine. */
#include "cli/bench.h"
#include "cli/bench_layers.h"

#include <string.h>

static int bench_run(int argc, char **argv) {
    if (argc < 2) return cli_usage(&command_bench, "what is to be measured?");
    if (!strcmp(argv[1], "layers")) return bench_layers_run(argc - 1, argv + 1);
    if (strcmp(argv[1], "comm"))
        return cli_usage(&command_bench, "'%s' cannot be measured", argv[1]);
    return bench_comm_run(argc - 1, argv + 1);
}

const struct command command_bench = {
    .name = "bench",
    .arguments = "comm [OPTION VALUE]... [--json | --csv] | layers [CONFIG] [OPTION VALUE]... "
                 "[--json]",
    .summary = "measures collectives, or the layers of a model",
    .help =
        "engine bench comm: collectives, and what a message and a byte cost\n"
        "  --collective C   all_reduce (default), reduce, broadcast, reduce_scatter, all_gather,\n"
        "                   scatter, gather, all_to_all, send_recv (to the next rank)\n"
        "  --link L         shm (default; processes), thread, or another of 'engine version\n"
        "                   --features', over loopback\n"
        "  --algorithm A    auto (default), all that can, or a name\n"
        "  --order O        tree or ring, in which ranks' elements are added; default: tree where\n"
        "                   the algorithm can\n"
        "  --ranks N        2 is the default\n"
        "  --from, --to S   sizes of the whole buffer: 1KB to 64MB by default\n"
        "  --factor F       from one size to the next; 4 by default\n"
        "  --type T, --op O of elements, f32 and sum by default\n"
        "  --iters N        calls a size; default: as many as fit in --seconds (0.2)\n"
        "  --emulate E      bandwidth=1Gbit,latency=50us: a port for each rank\n"
        "  --json, --csv    instead of the table\n"
        "  --save FILE      the JSON into a file, beside what is printed\n"
        "algbw is size/time; busbw counts the bytes that cross each rank's port, as nccl-tests\n"
        "does. wrong: elements with another value than expected. model: alpha + beta * size,\n"
        "fitted to all sizes by relative least squares.\n"
        "\n"
        "engine bench layers: each op of a training step, as it runs after fusion\n"
        "  CONFIG           its model, data's shape, precision and shard size; without one:\n"
        "  --model NAME     of the zoo, or {layers: [...]}\n"
        "  --input S        3x32x32, or 128 tokens; by default what is usual for the model\n"
        "  --classes N      the same\n"
        "  --batch N        samples of one pass\n"
        "  --precision P    f32 or bf16\n"
        "  --threads N      of the device; 1 by default, of which processor time is measured\n"
        "  --seconds T      how long to measure; 1s by default\n"
        "  --set KEY=VALUE  as in 'engine run'\n"
        "  --json           instead of the table\n"
        "bytes: what an op reads and writes, each once. peak: the larger of two rates measured\n"
        "in the same run, multiply-adds in registers and a product of 1024 x 1024 matrices.\n"
        "Winograd's convolutions are counted as plain ones, so they may be above it.\n",
    .run = bench_run,
};
