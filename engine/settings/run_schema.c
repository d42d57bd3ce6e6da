/* The keys of a run's configuration: its sections, each of which brings its own table, and what stands beside them. */
#include "engine/optim/schedule.h"
#include "engine/settings/loss.h"
#include "engine/settings/run_resolve.h"
#include "engine/settings/section.h"

#define AT(member) offsetof(struct run_config, member)

static const struct config_field run_fields[] = {
    {"name", CONFIG_STRING, AT(name), NULL,
     .help = "Name of the run; default: the name of the file. It has letters of any script, digits, '-', '_' and '.'"},
    {"mode", CONFIG_STRING, AT(mode), "ddp",
     .help =
         "single: one device; dp: parameter server, one thread for each device; ddp: all-reduce, one process for "
         "each device; ps: parameter servers and devices as processes; fsdp: as ddp, but weights, too, are in slices; "
         "pipeline: the layers in stages, one process for each device"},
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
     "and only what passes from one to another is kept. 1: all is kept; auto: as many as need the least memory. It "
     "costs about one more forward, and changes no bit",
     .min = 1, .max = 4096, .choices = "auto",
     .also = "gradient_checkpointing|activation_checkpointing|checkpoint_activations|activation_recomputation"},
    {"deterministic", CONFIG_ENUM, AT(deterministic), "true",
     "true: the same run gives the same bits; bitwise: also on any number of devices; false: two runs may differ, "
     "which makes staleness and NCCL faster",
     .choices = "false|true|bitwise"},
    {"cuda", CONFIG_SECTION, AT(cuda), .extra = &cuda_section},
    {"dp", CONFIG_SECTION, AT(dp), .extra = &dp_section},
    {"ddp", CONFIG_SECTION, AT(ddp), .extra = &ddp_section},
    {"ps", CONFIG_SECTION, AT(ps), .extra = &ps_section},
    {"fsdp", CONFIG_SECTION, AT(fsdp), .extra = &fsdp_section},
    {"pipeline", CONFIG_SECTION, AT(pipeline), .extra = &pipeline_section},
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
     "size_per_gpu|batch_size_per_device|train_micro_batch_size_per_gpu|micro_batch_size|local_batch_size|samples_per_"
     "gpu",
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
