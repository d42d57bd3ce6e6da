/* The running mean of the weights, as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn: a rule that follows
 * the optimizer's, over spans whose slot 0 is the mean. */
#pragma once
#include "engine/base/rule.h"

/* The rule of update number t, from 1; the spans' kind is 0. */
void ema_rule(double decay, int64_t t, struct rule *out);
