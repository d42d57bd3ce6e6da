/* tanh: the hyperbolic tangent, element by element. */
#include "engine/model/layer.h"

LAYER_ACTIVATION(tanh, ACT_TANH, "The hyperbolic tangent");
