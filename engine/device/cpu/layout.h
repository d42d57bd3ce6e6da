/* Images in either layout, and numbers in bf16. */
#pragma once
#include "engine/device/device.h"

/* sums (channels of y) = of each channel of 'image' (n, y), which lies in d's y_layout; the same
 * bits for any number of threads. Of segments it is the tree's sum. */
void channel_sums(const struct device *dev, const struct op_desc *d, const float *image, float *sums);

/* to = from, each rounded to the nearest bf16, ties to even; they may be the same. */
void bf16_round_all(int64_t n, const float *from, float *to);
