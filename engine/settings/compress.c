#include "engine/settings/compress.h"

#include <stdint.h>

#define RATIO                                                                                                          \
    {                                                                                                                  \
        .key = "ratio", .type = CONFIG_REAL, .offset = offsetof(struct compress_config, ratio), .standard = "0.01",    \
        .min = 1e-6, .max = 1, .help = "Share of the values that is sent"                                              \
    }
#define RANK                                                                                                           \
    {                                                                                                                  \
        .key = "rank", .type = CONFIG_INT, .offset = offsetof(struct compress_config, rank), .standard = "4",          \
        .min = 1, .max = 64, .help = "Rank of the two factors that are sent"                                           \
    }

static const struct config_field no_fields[] = {{.key = NULL}};
static const struct config_field topk_fields[] = {RATIO, {.key = NULL}};
static const struct config_field powersgd_fields[] = {RANK, {.key = NULL}};
static const struct config_field plugin_fields[] = {PLUGGED_FIELDS(compress_config), {.key = NULL}};

/* name, its keys, the one that a bare value is for, what it is */
#define SECTION(kind, keys, bare, text)                                                                                \
    static const struct config_section kind##_section = {                                                              \
        .name = #kind, .fields = (keys), .size = sizeof(struct compress_config), .shorthand = (bare), .help = (text)}
SECTION(none, no_fields, NULL, "Gradients are not compressed");
SECTION(bf16, no_fields, NULL, "Gradients are rounded to bf16 and added in bf16: half of the bytes");
SECTION(fp16, no_fields, NULL,
        "Gradients are rounded to fp16 and added in fp16: half of the bytes, but small gradients become zero");
SECTION(int8, no_fields, NULL,
        "Gradients are rounded to 8 bits with a scale for each 256 values; the error is added in the next step");
SECTION(topk, topk_fields, "ratio", "Only the largest values are sent; the others wait for later steps");
SECTION(powersgd, powersgd_fields, "rank",
        "Each matrix is sent as two thin factors (arXiv:1905.13727); the error is added in the next step");
SECTION(onebit, no_fields, NULL,
        "Of each value the sign, with one size for each 256 of them; the error is added in the next step");
SECTION(randomk, topk_fields, "ratio",
        "A random share of the values is sent, the same places on all ranks; the others wait for later steps");
SECTION(plugin, plugin_fields, "file", "Gradients are compressed by a plug-in: comm: {compress: ./mine.so}");

static const struct config_section *const sections[] = {
#define COMPRESS(name) &name##_section,
#include "engine/settings/compress.def"
};

static const struct config_section *section_at(int i) {
    return sections[i];
}

const struct config_variants compress_variants = {.name = "kind", .count = COMPRESS_KINDS, .at = section_at};

const char *compress_name(const struct config_variant *compress) {
    const struct compress_config *c = compress->config;
    return compress->index == COMPRESS_plugin ? c->plugged.file : sections[compress->index]->name;
}
