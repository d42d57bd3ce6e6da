/* Limits that several parts keep, each here alone. */
#pragma once

/* Ranks of a group, and so devices of a run (a server that is a rank of its own included), processes
 * and hosts: memory on one host holds pipes for each pair of them. */
#define RANKS_MAX 64
