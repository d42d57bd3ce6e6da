/* relu: max(x, 0), element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(relu, ACT_RELU, "The most usual activation: what is below 0 becomes 0", "torch.nn.ReLU",
                 "y = max(x, 0)");
