#include "engine/settings/places.h"

#include "engine/settings/section.h"

static const struct config_field elastic_fields[] = {
    {"min", CONFIG_INT, offsetof(struct elastic_config, min), "off",
     "The smallest number of devices: as long as this many are left, they continue, and the lost ones are tried again "
     "at the next checkpoint",
     .min = 1, .max = RANKS_MAX, .choices = "off"},
    {"nodes", CONFIG_INT, offsetof(struct elastic_config, nodes), "all",
     "The smallest number of hosts: the run begins when this many have come and no other follows for three seconds, or "
     "when run.nodes have; those that come later are taken in at the next checkpoint",
     .min = 1, .max = RANKS_MAX, .choices = "all"},
    {.key = NULL},
};
static SECTION(
    elastic, "min",
    "Whether the run continues when devices are lost, mode ddp. It needs no run.restarts; if fewer than min are "
    "left, run.restarts decides whether all devices start again");

static const struct config_path token_path = {.before = "file:"};
static const struct config_field place_fields[] = {
    {"nodes", CONFIG_INT, offsetof(struct place_config, nodes), "1",
     "Number of hosts that run 'engine run' together; each has 'devices'", .min = 1, .max = RANKS_MAX,
     .also = "num_nodes|nnodes"},
    {"node_rank", CONFIG_INT, offsetof(struct place_config, node_rank), "0", "Number of this host, from 0", .min = 0,
     .max = RANKS_MAX - 1},
    {"master", CONFIG_STRING, offsetof(struct place_config, master), "127.0.0.1",
     .help = "Host of node 0, where all nodes meet: a name or address, :PORT may follow",
     .also = "master_addr|rdzv_endpoint"},
    {"port", CONFIG_INT, offsetof(struct place_config, port), "29500", "Port of master", .min = 1, .max = 65535,
     .also = "master_port"},
    {"init", CONFIG_STRING, offsetof(struct place_config, init), "auto",
     .help = "How ranks that another launcher starts find each other: env://, tcp://HOST:PORT, file:///PATH; auto: by "
             "the environment of torchrun, Open MPI, PMI or Slurm; none: the environment is ignored",
     .also = "dist_url|init_method"},
    {"rank", CONFIG_INT, offsetof(struct place_config, rank), "auto",
     "Rank of this process, with init tcp:// or file://; auto: from the environment", .min = 0, .max = RANKS_MAX - 1,
     .choices = "auto", .word = -1},
    {"world_size", CONFIG_INT, offsetof(struct place_config, world_size), "auto",
     "Number of ranks, with init tcp:// or file://; auto: from the environment", .min = 1, .max = RANKS_MAX,
     .choices = "auto"},
    {"restarts", CONFIG_INT, offsetof(struct place_config, restarts), "0",
     "How often to start again from the last checkpoint when a rank or a node is lost", .min = 0, .max = 1000000},
    {"elastic", CONFIG_SECTION, offsetof(struct place_config, elastic), .extra = &elastic_section},
    {"token", CONFIG_PATH, offsetof(struct place_config, token), "auto",
     .help = "Place of the secret that all nodes share: env:NAME, file:PATH (a file that nobody else may read), or "
             "none; auto: env:ENGINE_TOKEN, or on one host a random secret",
     .extra = &token_path},
    {"join_timeout", CONFIG_SECONDS, offsetof(struct place_config, join_timeout), "60s",
     "How long ranks and nodes wait for each other at the start", .min = 1e-2, .max = 1e9},
    {.key = NULL},
};
SECTION(place, "nodes", "The processes of the run, and how they find each other");

static const struct config_field cuda_fields[] = {
    {"graph", CONFIG_ENUM, offsetof(struct cuda_config, graph), "auto",
     "auto: the kernels of a step are recorded once and then launched together; off: they are launched one by one",
     .choices = "auto|off"},
    {.key = NULL},
};
SECTION(cuda, "graph", "How GPUs are used");
