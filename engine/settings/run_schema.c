/* The keys of a run's configuration, one table a section. Optimizers, schedules and data sets bring
 * their own. */
#include "engine/optim/schedule.h"
#include "engine/settings/run_resolve.h"
#include "engine/tell/sink.h"

#define AT(member) offsetof(struct run_config, member)
#define ABOVE_ZERO .min = 1e-12, .max = 1e15
#define NO_LIMIT .max = -1 /* below min: none */

/* The section 'what' of what_fields, read into struct what_config. */
#define SECTION(what, bare, text)                                                                                      \
    static const struct config_section what##_section = {.name = #what,                                                \
                                                         .fields = what##_fields,                                      \
                                                         .size = sizeof(struct what##_config),                         \
                                                         .shorthand = (bare),                                          \
                                                         .help = (text)}

/* ---- training ---- */

static const struct config_field batch_fields[] = {
    {"size", CONFIG_INT, offsetof(struct batch_config, size), "128", "Number of samples in one step, over all devices",
     .min = 1, .max = INT32_MAX, .also = "batch_size|bs|train_batch_size|global_batch_size",
     .note = "It counts the samples of all devices together; a DataLoader's counts those of one"},
    {"shards", CONFIG_INT, offsetof(struct batch_config, shards), "auto",
     "Number of pieces of a batch, a power of two, and so the largest number of devices; results depend on the shards, "
     "not on the devices. auto: 8; fewer for a small batch or for batchnorm, more for more devices; one for each of 1, "
     "2, 4, ... GPUs, except with deterministic: bitwise",
     .min = 1, .max = RUN_SHARDS_MAX, .choices = "auto"},
    {"accumulate", CONFIG_INT, offsetof(struct batch_config, accumulate), "1",
     "Number of pieces of a shard, which a device computes one after the other to save memory; results depend on it as "
     "on the shards, and a resume cannot change it. 1: a device computes all its shards at once",
     .min = 1, .max = 65536, .also = "gradient_accumulation_steps|accumulate_grad_batches"},
    {"drop_last", CONFIG_BOOL, offsetof(struct batch_config, drop_last), "false",
     .help = "Leave out the last batch of an epoch if it is smaller"},
    {"pad", CONFIG_BOOL, offsetof(struct batch_config, pad), "false",
     .help = "Repeat samples so that every shard has the same number, as PyTorch's DistributedSampler does"},
    {.key = NULL},
};
SECTION(batch, "size", "The samples that are computed between two updates");

static const struct config_field train_fields[] = {
    {"for", CONFIG_LENGTH, offsetof(struct train_config, length), "3ep",
     "Length of the training: epochs, steps, or a time (60s, 5min, 1h). A time counts all steps, including those "
     "before a resume, but not the start, evaluation and checkpoints",
     ABOVE_ZERO,
     .also = "epochs|epoch|num_epochs|n_epochs|max_epochs|num_train_epochs|steps|iters|num_steps|max_steps|iterations|"
             "max_time|time_limit"},
    {"until", CONFIG_NODE, offsetof(struct train_config, until), NULL,
     .help =
         "Stop as soon as a metric is reached, such as {val.accuracy: 0.97}, {val.r2: 0.9} or {train.loss: 0.1}; the "
         "metrics of checkpoint.best and train.loss"},
    {"patience", CONFIG_NODE, offsetof(struct train_config, patience), NULL,
     .help = "Stop when a metric has not improved in so many evaluations, as {val.loss: 5}; {val.loss: 5, min_delta: "
             "0.001}: by more than that. checkpoint.best keeps the best",
     .also = "early_stopping|early_stopping_patience"},
    {.key = NULL},
};
SECTION(train, "for", "How long to train");

static const struct config_field optimizer_fields[] = {
    {"", CONFIG_VARIANT, offsetof(struct optimizer_config, kind), "sgd", "The rule that turns gradients into an update",
     .extra = &optim_variants},
    {"clip", CONFIG_REAL, offsetof(struct optimizer_config, clip), "off",
     "Largest norm of the whole gradient; a larger gradient is scaled down to it", .min = 1e-12, .max = 1e12,
     .choices = "off", .also = "grad_clip|max_grad_norm|gradient_clip_val"},
    {"shard", CONFIG_BOOL, offsetof(struct optimizer_config, shard), "false",
     .help = "Mode ddp: each rank keeps the state of only a part of the weights, and updates only that part (ZeRO-1); "
             "in mode dp use dp.server: sharded"},
    {"groups", CONFIG_NODE, offsetof(struct optimizer_config, groups_node), NULL,
     .help =
         "Keys of their own for some weights: [{match: \"*.bias\", weight_decay: 0}, {match: [\"h.0.*\", wte], lr: "
         "1e-4}]. The first group whose pattern matches a tensor's name has it; '*' is any text, '?' any character. "
         "For 'no decay of biases and norms' decay: matrices is enough",
     .also = "param_groups|parameter_groups"},
    {"freeze", CONFIG_NODE, offsetof(struct optimizer_config, freeze), NULL,
     .help =
         "Weights that stay as they are: names of tensors or patterns, as [\"conv1.*\", \"layer1.*\"]. The gradient "
         "is not computed beyond the first layer that is trained",
     .also = "frozen|requires_grad|freeze_layers"},
    {.key = NULL},
};
SECTION(optimizer, NULL, "The rule that turns gradients into an update");

static const struct config_field ema_fields[] = {
    {"decay", CONFIG_REAL, offsetof(struct ema_config, decay), "off",
     "How much of the mean a step keeps, as 0.999: evaluation is of the mean, and checkpoints hold both", .min = 1e-9,
     .max = 0.999999999, .choices = "off", .also = "ema_decay|averaging|swa"},
    {.key = NULL},
};
SECTION(ema, "decay", "A running mean of the weights, which eval, predict and generate then take");

static const struct config_field lr_scale_fields[] = {
    {"rule", CONFIG_ENUM, offsetof(struct lr_scale_config, rule), "none", "How the learning rate grows with the batch",
     .choices = "none|linear|sqrt"},
    {"base", CONFIG_INT, offsetof(struct lr_scale_config, base), "256",
     "Batch size for which the learning rate is chosen. 'lr_scale: {linear: 64}' sets both keys", .min = 1,
     .max = INT32_MAX},
    {.key = NULL},
};
SECTION(lr_scale, "rule", "The learning rate and the batch size");

/* ---- sharing gradients ---- */

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
    {"cap", CONFIG_BYTES, offsetof(struct bucket_config, cap), "25MB",
     "Size of the other buckets; 0: every parameter is a message of its own; flat: one message for all parameters, and "
     "'first' has no effect",
     .min = 0, NO_LIMIT, .choices = "flat", .word = -1, .also = "bucket_cap_mb"},
    {.key = NULL},
};
SECTION(bucket, "cap", "How many bytes of gradients travel in one message; used in modes ddp and dp");

static const struct config_field sync_fields[] = {
    {"every", CONFIG_INT, offsetof(struct sync_config, every), "1",
     "Number of steps between two exchanges. 1: gradients are shared in every step; more: each device makes these "
     "steps with its own samples, and then the weights are averaged (local SGD)",
     .min = 1, .max = 1000000},
    {"with", CONFIG_STRING, offsetof(struct sync_config, with), "all",
     "Whose weights are averaged: those of all devices, or of two at a time, each with a neighbour (gossip): all or "
     "neighbour"},
    {"state", CONFIG_ENUM, offsetof(struct sync_config, state), "local",
     "The optimizer's state if 'every' is more than 1: local to each device, or averaged with the weights",
     .choices = "local|average"},
    {.key = NULL},
};
SECTION(sync, "every", "How often devices exchange gradients or weights; used in mode ddp");

static const struct config_field ddp_fields[] = {
    {"bucket", CONFIG_SECTION, offsetof(struct ddp_config, bucket), .extra = &bucket_section},
    {"sync", CONFIG_SECTION, offsetof(struct ddp_config, sync), .extra = &sync_section},
    {"overlap", CONFIG_BOOL, offsetof(struct ddp_config, overlap), "true",
     .help = "Share gradients while backward still computes others"},
    {.key = NULL},
};
SECTION(ddp, "bucket", "All-reduce in buckets; used in mode ddp");

static const struct config_field emulate_fields[] = {
    {"bandwidth", CONFIG_RATE, offsetof(struct emulate_config, bandwidth), "off",
     "Bandwidth of each device's port, in each direction: 1Gbit", .min = 1, .max = 1e15, .choices = "off"},
    {"latency", CONFIG_SECONDS, offsetof(struct emulate_config, latency), "0s",
     "Time that is added to every message: 50us", .min = 0, .max = 60},
    {.key = NULL},
};
SECTION(emulate, "bandwidth", "Slower links than the real ones, to see the effect of a network");

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
             "hierarchical; native: the MPI library's own, with its bits"},
    {"order", CONFIG_ENUM, offsetof(struct comm_config, order), "auto",
     "Order of additions: tree gives the same bits on any number of devices, ring the same in dp "
     "and ddp",
     .choices = "auto|tree|ring"},
    {"timeout", CONFIG_SECONDS, offsetof(struct comm_config, timeout), "60s",
     "How long to wait for a rank before giving up; for a GPU, four fifths of this time. 'engine run' then ends the "
     "late rank as well; one that was started by hand or by another launcher ends once it goes on",
     .min = 1e-3, .max = 1e9},
    {"heartbeat", CONFIG_SECONDS, offsetof(struct comm_config, heartbeat), "10s",
     "How long a rank on another host may be silent before it counts as lost", .min = 0.05, .max = 1e9},
    {"interface", CONFIG_STRING, offsetof(struct comm_config, interface), "auto",
     .help = "Network interface on which ranks listen for other hosts, and which NCCL uses: an address or a name such "
             "as eth0; auto: the one that reaches run.master"},
    {"emulate", CONFIG_SECTION, offsetof(struct comm_config, emulate), .extra = &emulate_section},
    {"compress", CONFIG_VARIANT, offsetof(struct comm_config, compress), "none",
     "Mode ddp: gradients in fewer bytes; the bits then depend on the number of devices", .extra = &compress_variants},
    {.key = NULL},
};
SECTION(comm, "algorithm", "How bytes move between devices");

static const struct config_field elastic_fields[] = {
    {"min", CONFIG_INT, offsetof(struct elastic_config, min), "off",
     "The smallest number of devices: as long as this many are left, they continue, and the lost ones are tried again "
     "at the next checkpoint",
     .min = 1, .max = RANKS_MAX, .choices = "off"},
    {.key = NULL},
};
SECTION(elastic, "min",
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

/* ---- GPUs ---- */

static const struct config_field cuda_fields[] = {
    {"graph", CONFIG_ENUM, offsetof(struct cuda_config, graph), "auto",
     "auto: the kernels of a step are recorded once and then launched together; off: they are launched one by one",
     .choices = "auto|off"},
    {.key = NULL},
};
SECTION(cuda, "graph", "How GPUs are used");

/* ---- what is kept ---- */

static const struct config_field eval_fields[] = {
    {"every", CONFIG_SPAN, offsetof(struct eval_config, every), "1ep", "How often to evaluate; off: only at the end",
     ABOVE_ZERO, .choices = "off", .also = "eval_every|eval_steps|eval_interval|val_check_interval"},
    {.key = NULL},
};
SECTION(eval, "every", "Evaluation on validation data");

static const struct config_field checkpoint_fields[] = {
    {"every", CONFIG_SPAN, offsetof(struct checkpoint_config, every), "1ep", "How often to save", ABOVE_ZERO,
     .choices = "off", .also = "save_every|save_steps|save_interval"},
    {"keep", CONFIG_INT, offsetof(struct checkpoint_config, keep), "2", "Number of checkpoints to keep", .min = 1,
     .max = 1000000},
#define CHOICE(key, ...) "|val." #key
    {"best", CONFIG_STRING, offsetof(struct checkpoint_config, best), "off",
     .help = "Also keep the best checkpoint by this metric; of equal values the one with the lower val.loss, then the "
             "later one",
     .choices = "off" VAL_METRICS_LIST(CHOICE)},
#undef CHOICE
    {"resume", CONFIG_PATH, offsetof(struct checkpoint_config, resume), "never",
     .help = "never; auto: continue the newest run of this name; or the path of a checkpoint or run",
     .choices = "never|auto", .also = "resume_from_checkpoint|ckpt_path"},
    {"data", CONFIG_ENUM, offsetof(struct checkpoint_config, data), "same",
     "same: a checkpoint that was saved with other data is refused; any: training continues with the new data",
     .choices = "same|any"},
    {.key = NULL},
};
SECTION(checkpoint, "every", "Checkpoints, from which a stopped run can resume");

/* "|jsonl|csv|..." */
static const char sink_words[] =
#define SINK(name) "|" #name
#include "engine/tell/sinks.def"
#undef SINK
    ;
static const struct config_field log_fields[] = {
    {"dir", CONFIG_STRING, offsetof(struct log_config, dir), "runs/$name-$time",
     .help = "Folder of the run's files, relative to the working directory",
     .also = "output_dir|output|out_dir|out|logdir|log_dir|save_dir|run_dir"},
    {"every", CONFIG_SPAN, offsetof(struct log_config, every), "50st",
     "How often to print a line if there is no terminal for a progress bar", ABOVE_ZERO,
     .also = "log_every|log_interval|logging_steps|print_freq"},
    {"sinks", CONFIG_ENUMS, offsetof(struct log_config, sinks), "[jsonl]",
     .help = "Files for the numbers of every step: jsonl writes metrics.jsonl (always), csv metrics.csv, tensorboard "
             "tb/ for TensorBoard",
     .choices = sink_words + 1, .also = "logger|loggers|tensorboard|report_to"},
    {"dashboard", CONFIG_STRING, offsetof(struct log_config, dashboard), "off",
     .help = "Show the run in a browser: PORT for this host only, HOST:PORT, or off; port 0 is any free port"},
    {"trace", CONFIG_STRING, offsetof(struct log_config, trace), "off",
     .help =
         "Steps for which RUN_DIR/trace.json records what each rank did and when: 10..20st, one step as 10, or off"},
    {.key = NULL},
};
/* Each once, and jsonl among them. */
static void sinks_check(const struct config_list *sinks, const struct node *at, struct config_errors *e) {
    static const char *const names[] = {
#define SINK(name) #name,
#include "engine/tell/sinks.def"
#undef SINK
    };
    bool seen[SINK_KINDS] = {false};
    for (int i = 0; i < sinks->count; i++) {
        int kind = ((const int *)sinks->items)[i];
        if (seen[kind])
            config_error(e, at && at->kind == NODE_LIST ? at->items[i] : at, false, "'log.sinks' names %s twice",
                         names[kind]);
        seen[kind] = true;
    }
}

static void check_log(const void *config, const struct node *at, struct config_errors *e) {
    const struct log_config *c = config;
    sinks_check(&c->sinks, node_get(at, "sinks"), e);
}

static const struct config_section log_section = {.name = "log",
                                                  .fields = log_fields,
                                                  .size = sizeof(struct log_config),
                                                  .shorthand = "every",
                                                  .help = "What a run writes",
                                                  .check = check_log};

/* ---- all ---- */

static const struct config_field run_fields[] = {
    {"name", CONFIG_STRING, AT(name), NULL,
     .help = "Name of the run; default: the name of the file. It has letters of any script, digits, '-', '_' and '.'"},
    {"mode", CONFIG_STRING, AT(mode), "ddp",
     .help = "single: one device; dp: parameter server, one thread for each device; ddp: all-reduce, one process for "
             "each device"},
    {"devices", CONFIG_STRING, AT(devices_text), "auto", .help = "auto, or kind and number: cpu:4, ref:2",
     .also = "device|gpu|gpus|num_gpus|n_gpus|accelerator|nproc_per_node"},
    {"threads", CONFIG_INT, AT(threads), "auto",
     "Threads of each device; auto: the cores are divided among the devices", .min = 1, .max = 1024, .choices = "auto",
     .also = "num_threads"},
    {"model", CONFIG_NODE, AT(model), RUN_MODEL_STANDARD,
     .help = "A model of the zoo (engine model list), {zoo: NAME, ...} or {layers: [...]}. Also, init: FILE begins "
             "with the weights of a file, and strict: false takes only those that fit",
     .extra = "zoo", .also = "arch|architecture|network"},
    {"loss", CONFIG_VARIANT, AT(loss), "cross_entropy", "The loss function that is minimised", .extra = &loss_variants,
     .also = "criterion|loss_fn|loss_function|objective"},
    {"data", CONFIG_VARIANT, AT(data.set), "digits",
     "The data to learn from: a generated set, or a path, relative to this file's folder", .extra = &dataset_variants,
     .also = "dataset|data_dir|data_path|data_root"},
    {"batch", CONFIG_SECTION, AT(batch), .extra = &batch_section},
    {"train", CONFIG_SECTION, AT(train), .extra = &train_section},
    {"optimizer", CONFIG_SECTION, AT(optimizer), .extra = &optimizer_section, .also = "optim|opt|optimiser"},
    {"schedule", CONFIG_VARIANT, AT(schedule), "constant", "How the learning rate changes", .extra = &schedule_variants,
     .also = "scheduler|lr_scheduler|lr_schedule"},
    {"lr_scale", CONFIG_SECTION, AT(lr_scale), .extra = &lr_scale_section},
    {"ema", CONFIG_SECTION, AT(ema), .extra = &ema_section},
    {"seed", CONFIG_INT, AT(seed), "0", "Seed of all random numbers", .min = 0, NO_LIMIT,
     .also = "random_seed|manual_seed"},
    {"precision", CONFIG_ENUM, AT(precision), "f32",
     "Format to which the factors of products are rounded (on GPUs, in bf16 and fp16, also activations); weights, sums "
     "and the optimizer are always f32. fp16 and tf32 need a GPU",
     .choices = "f32|bf16|fp16|tf32", .also = "dtype|amp|mixed_precision|use_bf16|use_fp16",
     .means = "fp32=f32|float32=f32|float=f32|32=f32|full=f32|bfloat16=bf16|bf16_mixed=bf16|float16=fp16|f16=fp16|half="
              "fp16|16=fp16"},
    {"winograd", CONFIG_BOOL, AT(winograd), "true",
     .help = "Compute 3x3 convolutions of stride 1 by Winograd's algorithm on the cpu device: two to four times as "
             "fast as plain sums, with larger rounding errors"},
    {"sync_batchnorm", CONFIG_BOOL, AT(sync_batchnorm), "false",
     .help = "Batchnorm uses the moments of the whole batch instead of each shard's; a device then computes its shards "
             "together"},
    {"recompute", CONFIG_INT, AT(recompute), "1",
     "Activations that are computed again for backward, to save memory: the layers are cut into this many stretches, "
     "and "
     "only what passes from one to another is kept. 1: all is kept; auto: as many as need the least memory. It costs "
     "about one more forward, and changes no bit",
     .min = 1, .max = 4096, .choices = "auto",
     .also = "gradient_checkpointing|activation_checkpointing|checkpoint_activations|activation_recomputation"},
    {"deterministic", CONFIG_ENUM, AT(deterministic), "true",
     "true: the same run gives the same bits; bitwise: also on any number of devices; false: two runs may differ, "
     "which makes dp.staleness and NCCL faster",
     .choices = "false|true|bitwise"},
    {"cuda", CONFIG_SECTION, AT(cuda), .extra = &cuda_section},
    {"dp", CONFIG_SECTION, AT(dp), .extra = &dp_section},
    {"ddp", CONFIG_SECTION, AT(ddp), .extra = &ddp_section},
    {"comm", CONFIG_SECTION, AT(comm), .extra = &comm_section},
    {"run", CONFIG_SECTION, AT(run), .extra = &place_section},
    {"eval", CONFIG_SECTION, AT(eval), .extra = &eval_section},
    {"checkpoint", CONFIG_SECTION, AT(checkpoint), .extra = &checkpoint_section},
    {"log", CONFIG_SECTION, AT(log), .extra = &log_section},
    {"inject", CONFIG_SECTION, AT(inject), .extra = &inject_section},
    {.key = NULL},
};
static const struct config_foreign run_foreign[] = {
    {"per_device_train_batch_size|per_device_batch_size|per_device|per_gpu_train_batch_size|per_gpu_batch_size|batch_"
     "size_per_gpu|"
     "batch_size_per_device|train_micro_batch_size_per_gpu|micro_batch_size|local_batch_size|samples_per_gpu",
     "'batch' counts the samples of all devices together: write the number for one device times the number of devices"},
    {"find_unused_parameters",
     "leave it out: the layers of the model decide before training which weights get a gradient"},
    {"static_graph", "leave it out: layers and shapes are always fixed before the first step"},
    {"gradient_as_bucket_view", "leave it out: gradients are always computed in the memory of their bucket"},
    {"broadcast_buffers",
     "leave it out: batchnorm's running statistics follow shard 0, or the whole batch with sync_batchnorm: true"},
    {"evaluate|eval_only|test_only|do_eval", "that is a command here: engine eval RUN_DIR"},
    {"pretrained", "weights come from a file, as in 'model: {zoo: resnet18, init: FILE.safetensors}'; nothing is ever "
                   "downloaded"},
    {NULL, NULL}};
const struct config_section run_schema = {.name = "run",
                                          .fields = run_fields,
                                          .size = sizeof(struct run_config),
                                          .help = "The configuration of a run",
                                          .foreign = run_foreign};
