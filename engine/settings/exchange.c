#include "engine/settings/exchange.h"

#include "engine/base/limits.h"
#include "engine/base/links.h"
#include "engine/settings/compress.h"
#include "engine/settings/section.h"

static const struct config_field dp_fields[] = {
    {"server", CONFIG_ENUM, offsetof(struct dp_config, server), "shared",
     "shared: device 0 computes and is the server, too; dedicated: one more device is the server; sharded: each device "
     "serves a slice; cpu: one more rank is the server, in the host's memory",
     .choices = "shared|dedicated|sharded|cpu"},
    {"scatter", CONFIG_ENUM, offsetof(struct dp_config, scatter), "direct",
     "direct: every device loads its own samples; server: the server loads all samples and sends them",
     .choices = "direct|server"},
    {"overlap", CONFIG_ENUM, offsetof(struct dp_config, overlap), "auto",
     "Send gradients to the server while backward still computes others: true (also on), false (also off) or auto: "
     "only on accelerators",
     .choices = "auto|true|false|on|off", .means = "yes=true|no=false"},
    {"staleness", CONFIG_INT, offsetof(struct dp_config, staleness), "0",
     "0: all workers wait for each other in every step. N > 0: a server of its own (dedicated or cpu) updates the "
     "weights for each gradient that arrives, and a worker may be N steps ahead of the slowest one; unless "
     "deterministic is false, the workers take turns and are at most one step ahead",
     .min = 0, .max = 1000000, .choices = "unbounded", .word = -1},
    {.key = NULL},
};
SECTION(dp, "server", "The parameter server; used in mode dp");

static const struct config_field bucket_fields[] = {
    {"first", CONFIG_BYTES, offsetof(struct bucket_config, first), "1MB",
     "Size of the first bucket; a small one lets the exchange begin early", .min = 0, NO_LIMIT},
    {"cap", CONFIG_BYTES, offsetof(struct bucket_config, cap), BUCKET_STANDARD,
     "Size of the other buckets; 0: every parameter is a message of its own; flat: one message for all parameters, and "
     "'first' has no effect; tune: the run's first steps try sizes from 256KB, and the fastest is kept",
     .min = 0, NO_LIMIT, .choices = "flat|tune", .word = -1, .also = "bucket_cap_mb"},
    {.key = NULL},
};
static SECTION(bucket, "cap", "How many bytes of gradients travel in one message; used in modes ddp and dp");

static const struct config_field outer_fields[] = {
    {"lr", CONFIG_REAL, offsetof(struct outer_config, lr), "off",
     "Learning rate of the outer step: the weights go from where they were at the last meeting towards the mean by "
     "this share of the way, and by what momentum adds (DiLoCo, arXiv:2311.08105, has 0.7). off: they become the mean",
     .min = 1e-9, .max = 10, .choices = "off"},
    {"momentum", CONFIG_REAL, offsetof(struct outer_config, momentum), "0.9", "Nesterov momentum of the outer step",
     .max = 1},
    {.key = NULL},
};
static SECTION(outer, "lr", "An optimizer over meetings, with ddp.sync.every (DiLoCo)");

static const struct config_field sync_fields[] = {
    {"every", CONFIG_INT, offsetof(struct sync_config, every), "1",
     "Number of steps between two exchanges. 1: gradients are shared in every step; more: each device makes these "
     "steps with its own samples, and then the weights are averaged (local SGD)",
     .min = 1, .max = 1000000},
    {"with", CONFIG_STRING, offsetof(struct sync_config, with), "all",
     "Whose weights are averaged: those of all devices, or of two at a time, each with a neighbour (gossip): all, "
     "neighbour, or the file of a plug-in, which says what becomes of weights (engine new share)"},
    {"sha256", CONFIG_STRING, offsetof(struct sync_config, sha256),
     .help = "Digest that the plug-in must have; default: the one that it has when the run begins"},
    {"state", CONFIG_ENUM, offsetof(struct sync_config, state), "local",
     "The optimizer's state if 'every' is more than 1: local to each device, or averaged with the weights",
     .choices = "local|average"},
    {"outer", CONFIG_SECTION, offsetof(struct sync_config, outer), .extra = &outer_section},
    {.key = NULL},
};
static SECTION(sync, "every", "How often devices exchange gradients or weights; used in mode ddp");

static const struct config_field reduce_fields[] = {
    {"with", CONFIG_STRING, offsetof(struct reduce_config, with), "sum",
     "What the devices' gradients become. sum: the mean over all samples; adasum: what orthogonal gradients add up "
     "to and equal ones have once (arXiv:2006.02924), in pairs, so that the result depends on the number of "
     "devices; or the file of a plug-in (engine new share)"},
    {"sha256", CONFIG_STRING, offsetof(struct reduce_config, sha256),
     .help = "Digest that the plug-in must have; default: the one that it has when the run begins"},
    {.key = NULL},
};
static SECTION(reduce, "with", "How gradients of a step become one; used in mode ddp");

static const struct config_field ddp_fields[] = {
    {"bucket", CONFIG_SECTION, offsetof(struct ddp_config, bucket), .extra = &bucket_section},
    {"sync", CONFIG_SECTION, offsetof(struct ddp_config, sync), .extra = &sync_section},
    {"reduce", CONFIG_SECTION, offsetof(struct ddp_config, reduce), .extra = &reduce_section},
    {"overlap", CONFIG_BOOL, offsetof(struct ddp_config, overlap), "true",
     .help = "Share gradients while backward still computes others"},
    {.key = NULL},
};
SECTION(ddp, "bucket", "All-reduce in buckets; used in mode ddp");

static const struct config_field ps_fields[] = {
    {"servers", CONFIG_INT, offsetof(struct ps_config, servers), "1",
     "Number of parameter servers. Each has its part of every partition of the weights, and the optimizer's state of "
     "it. each: one for each of 'devices'",
     .min = 1, .max = RANKS_MOST - 1, .choices = "each", .word = -1},
    {"place", CONFIG_ENUM, offsetof(struct ps_config, place), "apart",
     "apart: servers are processes of their own, which compute nothing, beside those of 'devices'. workers: some of "
     "the devices' processes are servers, too, as far apart as possible",
     .choices = "apart|workers"},
    {"hosts", CONFIG_ENUM, offsetof(struct ps_config, hosts), "first",
     "Where servers apart are, of several hosts. first: all on the first one, beside its devices; spread: on all "
     "hosts, as many on each, beside the devices; own: one on each of the first hosts, whose devices are not used",
     .choices = "first|spread|own"},
    {"partition", CONFIG_BYTES, offsetof(struct ps_config, partition), "1MB",
     "How many bytes of gradients or weights travel at a time; its parts go to all servers at once", .min = 1,
     NO_LIMIT},
    {"overlap", CONFIG_BOOL, offsetof(struct ps_config, overlap), "true",
     .help = "Send gradients to the servers while backward still computes others"},
    {"staleness", CONFIG_INT, offsetof(struct ps_config, staleness), "0",
     "As dp.staleness, of one server apart: it updates the weights for each gradient that arrives, whole, and a worker "
     "may be this number of steps ahead of the slowest one; 'partition' and 'overlap' then have no effect. 0: all "
     "workers wait for each other in every step",
     .min = 0, .max = 1000000, .choices = "unbounded", .word = -1},
    {.key = NULL},
};
SECTION(ps, "servers", "Parameter servers as processes; used in mode ps");

static const struct config_field fsdp_fields[] = {
    {"reshard", CONFIG_ENUM, offsetof(struct fsdp_config, reshard), "forward",
     "When a device gives back the weights that others update. forward: after the layer has computed, and they are "
     "gathered again for backward; backward: when backward has ended; never: it keeps all weights",
     .choices = "forward|backward|never"},
    {"unit", CONFIG_BYTES, offsetof(struct fsdp_config, unit), "4MB",
     "How many bytes of weights or gradients are shared out and travel at a time. Parameters are never cut; one that "
     "is larger is a unit of its own",
     .min = 1, NO_LIMIT},
    {"overlap", CONFIG_BOOL, offsetof(struct fsdp_config, overlap), "true",
     .help = "Gather weights and send gradients while layers compute"},
    {.key = NULL},
};
SECTION(fsdp, "reshard", "Weights in slices; used in mode fsdp");
static const struct config_field pipeline_fields[] = {
    {"stages", CONFIG_STRINGS, offsetof(struct pipeline_config, stages), "auto",
     .help = "The parts that the layers are cut into. auto: one for each device; a number that divides that of the "
             "devices: as many, on as many copies of the network as there are devices for, which share the batch; "
             "either is cut so that the slowest stage takes the least time. A list of layers: a stage begins with each "
             "of them, and the first with the first layer",
     .also = "pipeline_parallel_size|pipeline_parallel_degree|pp_size|num_stages"},
    {"schedule", CONFIG_ENUM, offsetof(struct pipeline_config, schedule), "1f1b",
     "gpipe: all micro-batches go forward before the first goes backward, so a stage keeps the activations of all; "
     "1f1b: a stage goes backward as soon as it can, and keeps those of as many as there are stages from it on. Both "
     "wait as long for each other, and give the same bits",
     .choices = "gpipe|1f1b"},
    {.key = NULL},
};
SECTION(pipeline, "stages", "The layers in stages, on one device each; used in mode pipeline");

#define USUAL(key) offsetof(struct links_config, value[EMULATED_##key]), "usual", .choices = "usual", .word = -1
static const struct config_field links_fields[] = {
    {"ranks", CONFIG_STRINGS, offsetof(struct links_config, ranks), .help = "The ranks at one end: 2, 0-3, [0-3, 8-11]",
     .required = true, .also = "rank|from"},
    {"to", CONFIG_STRINGS, offsetof(struct links_config, to), "[]",
     .help =
         "The ranks at the other end, which may be the same ones; without it, this is about the ports of 'ranks' and "
         "about their links to all others"},
    {"one_way", CONFIG_BOOL, offsetof(struct links_config, one_way), "false",
     .help = "Only what 'ranks' send to 'to', not what comes back"},
    {"bandwidth", CONFIG_RATE, USUAL(BANDWIDTH),
     .help = "Bandwidth of each of these links, which is then the least of that and the ports' at its ends; without "
             "'to', of the ports of 'ranks'",
     .min = 1, .max = 1e15},
    {"up", CONFIG_RATE, USUAL(UP), .help = "Bandwidth of what leaves the ports of 'ranks'; without 'to' only", .min = 1,
     .max = 1e15},
    {"latency", CONFIG_SECONDS, USUAL(LATENCY), .help = "Latency of these links", .min = 0, .max = 60},
    {"jitter", CONFIG_SECONDS, USUAL(JITTER), .help = "Jitter of these links", .min = 0, .max = 60},
    {"loss", CONFIG_SHARE, USUAL(LOSS), .help = "Share of segments that these links lose", .min = 0, .max = 0.5},
    {.key = NULL},
};
static SECTION(links, NULL, "Links that differ from the others");
#define AS(member) offsetof(struct emulate_config, as.member)
static const struct config_field emulate_fields[] = {
    {"bandwidth", CONFIG_RATE, AS(bandwidth), "off", "Bandwidth of each device's port, in each direction: 1Gbit",
     .min = 1, .max = 1e15, .choices = "off"},
    {"up", CONFIG_RATE, AS(up), "same",
     "Bandwidth of what leaves a port, where it is another one than of what comes: 50Mbit", .min = 1, .max = 1e15,
     .choices = "same"},
    {"latency", CONFIG_SECONDS, AS(latency), "0s", "Time that is added to every message: 50us", .min = 0, .max = 60},
    {"jitter", CONFIG_SECONDS, AS(jitter), "0s",
     "Mean of a further time that is drawn for every message, from an exponential distribution: 5ms", .min = 0,
     .max = 60},
    {"loss", CONFIG_SHARE, AS(loss), "0%",
     "Share of segments of 1,448 bytes that are lost: each comes a round trip later, and one of the last three of a "
     "message 200 ms after that",
     .min = 0, .max = 0.5},
    {"links", CONFIG_SECTIONS, offsetof(struct emulate_config, links), "[]",
     .help = "Links and ports that differ from the others: [{ranks: 0-3, to: 4-7, latency: 40ms}, {ranks: 5, up: "
             "10Mbit}]. Of several that say the same of a link, the last counts",
     .extra = &links_section},
    {.key = NULL},
};
static SECTION(emulate, "bandwidth",
               "Slower links than the real ones, to see the effect of a network; a file's name (links.yaml) stands for "
               "the keys in it");

static const struct config_field comm_fields[] = {
    {"backend", CONFIG_ENUM, offsetof(struct comm_config, backend), "auto",
     "How gradients move between GPUs: copies from GPU to GPU (peer, mode dp), NVIDIA's library (nccl, mode ddp), or "
     "through the host, by link and algorithm",
     .choices = "auto|host|peer|nccl", .also = "dist_backend"},
    {"link", CONFIG_ENUM, offsetof(struct comm_config, link), "auto", "How bytes travel between ranks: "
#define LINK(KIND, name, joins, launched, about) about
#include "engine/base/links.def"
     ,
     .choices = "auto"
#define LINK(KIND, name, joins, launched, about) "|" #name
#include "engine/base/links.def"
    },
    {"algorithm", CONFIG_STRING, offsetof(struct comm_config, algorithm), "auto",
     .help = "Algorithm by which ranks add up their gradients: auto, direct, ring, star, tree, halving_doubling, "
             "hierarchical; native: the MPI library's own, with its bits; tune: the run's first steps try those that "
             "give the same bits, and the fastest is kept; or the path of a plug-in, as ./mine.so or ./mine.py"},
    {"sha256", CONFIG_STRING, offsetof(struct comm_config, sha256),
     .help = "Digest that the plug-in of 'algorithm' must have; default: the one that it has when the run begins"},
    {"order", CONFIG_ENUM, offsetof(struct comm_config, order), "auto",
     "Order of additions: tree gives the same bits on any number of devices, ring the same in dp and ddp",
     .choices = "auto|tree|ring"},
    {"timeout", CONFIG_SECONDS, offsetof(struct comm_config, timeout), "60s",
     "How long to wait for a rank before giving up; for a GPU, four fifths of this time. 'engine run' then ends the "
     "late rank as well; one that was started by hand or by another launcher ends once it goes on",
     .min = 1e-3, .max = 1e9},
    {"heartbeat", CONFIG_SECONDS, offsetof(struct comm_config, heartbeat), "10s",
     "How long a rank on another host may be silent before it counts as lost; three times as long while its host "
     "still answers, as that of a rank which is stopped or starved by other processes does",
     .min = 0.05, .max = 1e9},
    {"interface", CONFIG_STRING, offsetof(struct comm_config, interface), "auto",
     .help = "Network interface on which ranks listen for other hosts, and which NCCL uses: an address or a name such "
             "as eth0; auto: the one that reaches run.master"},
    {"secure", CONFIG_ENUM, offsetof(struct comm_config, secure), "auto",
     "What guards messages between hosts. sealed: nobody on the way can change them; encrypted: or read them, for "
     "about half as much processor time again; both need a secret (run.token). off: a checksum finds accidental "
     "damage. auto: sealed where there is a secret, else off. Expressly sealed or encrypted, messages over TCP within "
     "a host are, too",
     .choices = "auto|off|sealed|encrypted"},
    {"emulate", CONFIG_SECTION, offsetof(struct comm_config, emulate), .extra = &emulate_section},
    {"compress", CONFIG_VARIANT, offsetof(struct comm_config, compress), "none",
     "Modes of processes: gradients in fewer bytes; the bits then depend on the number of devices",
     .extra = &compress_variants},
    {.key = NULL},
};
SECTION(comm, "algorithm", "How bytes move between devices");
