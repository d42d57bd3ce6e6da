#include "engine/model/cost.h"

static double conv_products(const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    double products = (double)d->x.dim[0] / d->conv.groups * (double)d->y.dim[0];
    for (int i = 0; i < 2; i++) {
        int64_t room = d->x.dim[1 + i] + 2 * w->pad[i] - w->kernel[i];
        products *= w->kernel[i] * (double)(room / w->stride[i] + 1);
    }
    return products;
}

static double op_products(const struct op_desc *d) {
    switch (d->kind) {
    case OP_LINEAR:
        return (double)shape_count(&d->x) * (double)shape_last(&d->y);
    case OP_CONV2D:
        return conv_products(d);
    case OP_ATTENTION: /* q k' and p v; half of them where it is causal */
        return (double)shape_count(&d->y) * (double)d->y.dim[0] * (d->attention.causal ? 1 : 2);
    default:
        return 0;
    }
}

double op_flops(const struct op_desc *d, bool backward) {
    return 2 * op_products(d) * (!backward ? 1 : d->first ? 1 : 2);
}
