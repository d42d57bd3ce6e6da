/* silu: x / (1 + e^-x), element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(silu, ACT_SILU, "x by its own sigmoid, also called swish", "torch.nn.SiLU", "y = x / (1 + e^-x)");
