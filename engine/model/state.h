/* Where the state of an optimizer lies: a slot has for each tensor of the model as much as the tensor has, in its place; or, of
 * an optimizer that keeps less, what it keeps, without gaps. */
#pragma once
#include "engine/model/model.h"
#include "engine/optim/optim.h"

/* Sets *out to the shape of a tensor's state in the slot; false: it has none there. */
bool state_shape(const struct optim_ops *o, int slot, const struct shape *tensor, struct shape *out);
/* Where in the slot of the whole model's state the arena's place 'at' is, which is where a tensor begins or ends. */
int64_t state_place(const struct model *m, const struct optim_ops *o, int slot, int64_t at);
/* How many numbers of state there are for each weight, over all slots. */
double state_each(const struct model *m, const struct config_variant *optimizer);
