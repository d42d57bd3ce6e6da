/* An optimizer of a user's own (engine/plugin.h), in plain C on the host's memory. */
#pragma once
#include "engine/config/plugged.h"
#include "engine/optim/groups.h"

extern const struct optim_ops optim_plugin;
/* Its file and keys; NULL where the optimizer is one of the table. */
struct plugged_config *optim_plugged(const struct config_variant *optimizer);
/* What tells the optimizer from others: its name, of a plug-in its digest, too. Once the configuration is resolved. */
const char *optim_identity(const struct config_variant *optimizer, struct pool *pool);
/* Before the first step, on each rank: opens the plug-in and reads each group's parameters. */
MUST_CHECK enum error optim_plugin_open(const struct optim_groups *g, const struct config_variant *optimizer);
