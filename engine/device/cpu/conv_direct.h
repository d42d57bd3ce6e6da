/* conv_direct.c with kernels of its caller's choice: for tests. */
#pragma once
#include "engine/device/cpu/conv_direct_product.h"

/* Kernels that this machine can run, best first; gives how many. */
int direct_kernels(const struct direct_kernels *out[3]);
/* cpu_conv_direct's create, with given kernels. */
MUST_CHECK enum error conv_direct_create(const struct direct_kernels *k, struct device *dev, const struct op_desc *d,
                                         struct op **out);
