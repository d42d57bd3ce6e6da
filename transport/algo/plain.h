/* Every collective in the plain way: the one with the data sends it to the one that needs it, and
 * sums are made where they are needed, in the group's order. In place or staged, the needy read the
 * others' buffers; otherwise bytes travel in pipes. The bytes are the same. */
#pragma once
#include "transport/algo/algo.h"

extern const collective_fn plain_run[COLLECTIVES];
