/* tanh: the hyperbolic tangent, element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(tanh, ACT_TANH, "Squeezes x between -1 and 1", "torch.nn.Tanh", "y = (e^x - e^-x) / (e^x + e^-x)");
