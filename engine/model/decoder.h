/* The next-token outputs of a network, for programs that add one token after another: the outputs at the last of some
 * tokens, for a network with an output at each position. If a position sees only the ones before it, keys and values
 * of the tokens of the previous call are kept, and one more token costs one position. */
#pragma once
#include "engine/model/graph.h"

struct decoder;
/* values and buffers: the model's, in the device's memory; borrowed, as is the model. They must not change. */
MUST_CHECK enum error decoder_create(const struct model *m, struct device *dev, enum precision precision,
                                     const float *values, float *buffers, struct decoder **out);
void decoder_free(struct decoder *d); /* NULL is fine */

/* *y: the outputs at the last of 'count' tokens, 1 to as many as the model's input has; the decoder's until the next
 * call. A function of the weights and the tokens alone: the same bits whatever the calls before were, and those of
 * graph_forward on a whole input. */
MUST_CHECK enum error decoder_run(struct decoder *d, const float *tokens, int64_t count, const float **y);
