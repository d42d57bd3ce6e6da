/* Information about NCCL that needs no group. */
#pragma once
#include "engine/device/runtime.h"

void nccl_software(struct device_software *out);
/* Opens a communicator of one rank on the device and adds with it, within 30 s. */
MUST_CHECK enum error nccl_probe(struct device *dev);
