/* The keys of a part that a plug-in provides, and the values of its parameters. */
#pragma once
#include "engine/base/plugin.h"
#include "engine/config/schema.h"

struct plugged_config {
    const char *file, *sha256; /* sha256: NULL until the configuration is resolved */
    const struct node *with;   /* {NAME: value}, or NULL */
};
/* Rows of a section whose struct has the member 'plugged'. */
#define PLUGGED_FIELDS(of)                                                                                             \
    {.key = "file",                                                                                                    \
     .type = CONFIG_PATH,                                                                                              \
     .offset = offsetof(struct of, plugged.file),                                                                      \
     .required = true,                                                                                                 \
     .help = "The shared object; its code runs in every rank"},                                                        \
        {.key = "sha256",                                                                                              \
         .type = CONFIG_STRING,                                                                                        \
         .offset = offsetof(struct of, plugged.sha256),                                                                \
         .help = "Digest that the file must have; default: the one that it has when the run begins"},                  \
    {                                                                                                                  \
        .key = "with", .type = CONFIG_NODE, .offset = offsetof(struct of, plugged.with),                               \
        .help = "Values of the plug-in's parameters, by name: {keep: 0.9}"                                             \
    }

/* Before the schema reads the tree: where a variant's name is a path, as in 'compress: ./mine.so', the name becomes
 * "plugin" and the path its key 'file'. at: the variant's node, or NULL; name: the key of its name. */
MUST_CHECK enum error plugged_expand(struct node *at, const char *name, struct pool *pool);
/* Opens it, and fills in the values of its parameters. What is wrong with a value is an error by its name. */
MUST_CHECK enum error plugged_open(const struct plugged_config *c, enum plugin_kind kind, const struct plugin **out,
                                   double value[ENGINE_PARAMETERS]);
