/* conv2d: each output channel is a sum of windows over the input channels of its group. */
#include "engine/model/layers/window.h"

#include <math.h>

struct conv_config {
    int64_t out, groups;
    bool bias;
    int init;
    struct window_config window;
};
enum { CONV_DEFAULT, CONV_KAIMING };

static enum error conv_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    const struct conv_config *c = config;
    struct window w;
    TRY(window_plan(&c->window, x, &w, &p->y));
    if (x->dim[0] % c->groups || c->out % c->groups)
        return FAIL(ERR_CONFIG, "groups %lld does not divide both %lld input and %lld output channels",
                    (long long)c->groups, (long long)x->dim[0], (long long)c->out);
    int64_t in = x->dim[0] / c->groups, fan_in = in * w.kernel[0] * w.kernel[1];
    p->y.dim[0] = c->out;
    p->op = (struct op_desc){.kind = OP_CONV2D, .x = *x, .y = p->y};
    p->op.conv.window = w;
    p->op.conv.groups = (int)c->groups;
    p->op.conv.bias = c->bias;
    struct shape shape = {.ndim = 4, .dim = {c->out, in, w.kernel[0], w.kernel[1]}};
    float kaiming = sqrtf(2 / (float)(c->out * w.kernel[0] * w.kernel[1]));
    layer_plan_affine(p, shape, c->out, fan_in, c->init == CONV_KAIMING ? (double)kaiming : 0, c->bias);
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"out", CONFIG_INT, offsetof(struct conv_config, out), .required = true, .also = "out_channels|filters", .min = 1,
     .max = 1 << 20, .help = "Output channels"},
    {"kernel", CONFIG_INTS, offsetof(struct conv_config, window.kernel), "3", .also = "kernel_size",
     .help = "Size of the window, one number or [height, width]", .min = 1, .max = 1024},
    {"stride", CONFIG_INTS, offsetof(struct conv_config, window.stride), "1",
     .help = "Step from one window to the next", .min = 1, .max = 1024},
    {"pad", CONFIG_INTS, offsetof(struct conv_config, window.pad), "0", .also = "padding",
     .help = "Rows and columns of zeros added around the image", .min = 0, .max = 1024},
    {"groups", CONFIG_INT, offsetof(struct conv_config, groups), "1",
     .help = "Cuts the channels into groups that do not see each other", .min = 1, .max = 1 << 20},
    {"bias", CONFIG_BOOL, offsetof(struct conv_config, bias), "true",
     .help = "Whether a learned constant is added to each output channel"},
    {"init", CONFIG_ENUM, offsetof(struct conv_config, init), "default", .choices = "default|kaiming",
     .help = "First weights: PyTorch's uniform, or normal with variance 2 / (out kernel area) and "
             "biases of 0, as torchvision's resnets have them"},
    {0},
};

const struct layer_ops layer_conv2d = {
    .section = {.name = "conv2d",
                .fields = fields,
                .size = sizeof(struct conv_config),
                .shorthand = "out",
                .help =
                    "Convolution of an image: each output channel sums weighted windows over the channels of its group",
                .also = "torch.nn.Conv2d"},
    .out = {[INPUT_IMAGE] = "out, (H + 2 * pad - kernel) / stride + 1, (W + 2 * pad - kernel) / stride + 1"},
    .formula = "y[o, i, j] = bias[o] + sum over c, u, v of weight[o, c, u, v] * x[c, i * stride + u - pad, j * stride "
               "+ v - pad]",
    .example = "- conv2d: {out: 16, kernel: 3, pad: 1}",
    .of = "3x32x32",
    .plan = conv_plan,
};
