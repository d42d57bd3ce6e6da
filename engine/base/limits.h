/* Limits that several parts keep, each here alone. */
#pragma once

/* The most ranks of a group, and therefore devices of a run (including a server that is a rank of its own), processes
 * and hosts. Memory on one host holds pipes for each pair of ranks. */
#define RANKS_MAX 64
