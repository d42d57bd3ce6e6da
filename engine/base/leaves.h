/* The shards of a batch are the leaves of a tree of additions: v with v + V/2, then v with v + V/4, and so on, for V of
 * them, a power of two. From left to right the tree has them in the order of their numbers' bits read backwards:
 *
 *   V = 8    position  0   1   2   3   4   5   6   7
 *            shard     0   4   2   6   1   5   3   7
 *                      0+4     2+6     1+5     3+7
 *                      0+4+2+6         1+5+3+7
 *
 * W devices take W runs of positions, whose lengths differ by at most one. A run is one complete subtree, or a few that
 * stand side by side: what its device adds by itself. What is left is added along the same tree, whoever adds it, so
 * that any W gives the same bits. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* LEAVES_DEPTH: subtrees that stand beside each other while terms are added, each larger than the next; and one more. */
enum { LEAVES_MAX = 4096, LEAVES_DEPTH = 14 };

static inline bool is_power_of_two(int64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* The shard at a position of 'leaves'. */
static inline int leaves_shard(int leaves, int position) {
    int shard = 0;
    for (int bit = 1; bit < leaves; bit *= 2) shard = 2 * shard + (position & bit ? 1 : 0);
    return shard;
}

/* The position at which run r of 'runs' begins and run r - 1 ends. The first runs are the longer ones: if most runs
 * have one position and the others two, each run is a subtree. */
static inline int leaves_cut(int leaves, int runs, int r) {
    int longer = leaves % runs;
    return leaves / runs * r + (r < longer ? r : longer);
}

/* The longest run's share of all leaves, and how much longer it is than the mean run, which is the time that the
 * others wait. */
static inline double leaves_longest(int leaves, int runs) {
    return (double)leaves_cut(leaves, runs, 1) / leaves;
}
static inline double leaves_imbalance(int leaves, int runs) {
    return (double)leaves_cut(leaves, runs, 1) * runs / leaves - 1;
}

/* How many positions the largest subtree has that begins at 'from' and ends by 'to'. */
static inline int leaves_subtree(int from, int to) {
    int size = 1;
    while (from % (2 * size) == 0 && from + 2 * size <= to) size *= 2;
    return size;
}

/* How many subtrees the positions [from, to) are. */
static inline int leaves_subtrees(int from, int to) {
    int count = 0;
    for (; from < to; from += leaves_subtree(from, to)) count++;
    return count;
}

/* The tree as a program: terms that begin at these positions, ascending, are taken in one after another, and after term
 * i adds[i] times the last two that are left become their sum. (Two meet where the tree first has both of them, and as
 * soon as that has no place for the next term.) */
static inline void leaves_adds(const int *leaf, int n, uint8_t *adds) {
    int left[LEAVES_DEPTH], depth = 0;
    for (int i = 0; i < n; i++) {
        left[depth++] = leaf[i];
        adds[i] = 0;
        for (; depth > 1; depth--, adds[i]++)
            if (i + 1 < n && (left[depth - 2] ^ left[depth - 1]) > (left[depth - 1] ^ leaf[i + 1])) break;
    }
}
