/* engine bench: how fast the parts of the engine are on this machine. */
#include "cli/bench/bench.h"
#include "cli/bench/layers.h"

const struct command command_bench = {
    .name = "bench",
    .also = "benchmark|profile",
    .summary = "measures collectives, or the layers of a model",
    .forms = (const struct command *const[]){&command_bench_comm, &command_bench_layers, NULL},
};
