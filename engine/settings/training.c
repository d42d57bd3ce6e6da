#include "engine/settings/training.h"

#include "engine/settings/section.h"

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
     .help =
         "Stop when a metric has not improved in a number of evaluations, as {val.loss: 5}; {val.loss: 5, min_delta: "
         "0.001}: by more than that. checkpoint.best keeps the best",
     .also = "early_stopping|early_stopping_patience"},
    {"stop", CONFIG_SPAN, offsetof(struct train_config, stop), "off",
     "End the run here, before the end of the training: 2ep or 500st. It evaluates and saves a checkpoint, the "
     "schedule stays that of the whole training, and a run that resumes goes on as if there had been no stop",
     ABOVE_ZERO, .choices = "off"},
    {"noise_scale", CONFIG_SPAN, offsetof(struct train_config, noise_scale), "off",
     "Every how many steps, as 10st, the gradient-noise scale is measured: from the norms of the shards' gradients, "
     "which are then computed one by one. The summary and the report say what it says of the batch",
     ABOVE_ZERO, .choices = "off", .also = "gradient_noise_scale|gns"},
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
