/* sigmoid: 1 / (1 + e^-x), element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(sigmoid, ACT_SIGMOID, "Squeezes x between 0 and 1", "torch.nn.Sigmoid", "y = 1 / (1 + e^-x)");
