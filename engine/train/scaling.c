/* fp16: gradients below 2^-24 would vanish. So the loss's gradient is multiplied by a scale, a power of two, and the
 * sum of gradients divided by it before the update. A scale too large shows in a gradient that is not finite: that
 * step is left out, and the scale halved; after many good ones it is doubled. Every rank sees the same sums, and so
 * has the same scale. */
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"

#include <math.h>

static const double first_scale = 65536, largest_scale = 16777216, smallest_scale = 0x1p-24;
enum { GOOD_STEPS = 2000 };

bool scaling_on(const struct trainer *t) {
    return t->config->precision == PRECISION_FP16;
}

void scaling_open(struct trainer *t) {
    t->at.loss_scale = scaling_on(t) ? first_scale : 0;
}

float scaling_factor(const struct trainer *t) {
    return scaling_on(t) ? (float)t->at.loss_scale : 1;
}

void scaling_undo(struct trainer *t, double *partial, int64_t blocks) {
    double back = 1 / t->at.loss_scale, sum = 0;
    for (int64_t i = 0; i < blocks; i++) {
        partial[i] *= back * back;
        sum += partial[i];
    }
    t->rate.scale = (float)back;
    t->sums.skipped = !isfinite(sum);
}

void scaling_follow(struct trainer *t) {
    struct checkpoint_counters *c = &t->at;
    if (!scaling_on(t)) return;
    c->good_steps++;
    if (t->sums.skipped) {
        c->skipped++;
        c->good_steps = 0;
        c->loss_scale = fmax(c->loss_scale / 2, smallest_scale);
    } else if (c->good_steps == GOOD_STEPS) {
        c->good_steps = 0;
        c->loss_scale = fmin(c->loss_scale * 2, largest_scale);
    }
}
