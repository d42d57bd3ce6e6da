/* relu: max(x, 0), element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(relu, ACT_RELU, "max(x, 0)");
