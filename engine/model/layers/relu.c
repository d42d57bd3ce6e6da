/* relu: max(x, 0), element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(relu, ACT_RELU, "The most usual activation: values below 0 become 0", "torch.nn.ReLU",
                 "y = max(x, 0)");
