/* The cost of computing ops. */
#pragma once
#include "engine/device/ops.h"

/* Operations of one sample, two for each product of linear, conv2d and attention; the rest is small
 * beside them. Backward has as many again for dw, and for dx unless the input is data. */
double op_flops(const struct op_desc *d, bool backward);
