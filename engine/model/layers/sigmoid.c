/* sigmoid: 1 / (1 + e^-x), element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(sigmoid, ACT_SIGMOID, "1 / (1 + e^-x)");
