/* Limits that several parts keep, each here alone. */
#pragma once

/* The most ranks of a group, and therefore devices of a run (including a server that is a rank), processes and hosts.
 * It only bounds what configurations, environments and files may ask for: arrays have the size of their group. */
#define RANKS_MOST 4096
