/* Arithmetic of sizes: bounds, and counts in whole parts. */
#pragma once
#include <stdint.h>

static inline int64_t at_most(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t at_least(int64_t a, int64_t b) {
    return a > b ? a : b;
}
/* How many parts of 'each' hold 'count', and how much these are. */
static inline int64_t parts_of(int64_t count, int64_t each) {
    return (count + each - 1) / each;
}
static inline int64_t round_up(int64_t count, int64_t each) {
    return parts_of(count, each) * each;
}
