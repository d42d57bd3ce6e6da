#include "engine/device/cpu/onednn.h"

#include <stdlib.h>
#include <string.h>

bool onednn_uses(dnnl_cpu_isa_t isa) {
#if defined(__x86_64__)
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
#else
    (void)isa;
    return false;
#endif
}

void onednn_limit(dnnl_cpu_isa_t isa) {
    (void)dnnl_set_max_cpu_isa(isa); /* refused after the first use, which has followed an earlier call */
}

/* ---- what the versions spell each in its own way -------------------------------------------- */
#if DNNL_VERSION_MAJOR < 3
dnnl_status_t onednn_layout_create(const_dnnl_memory_desc_t *out, int nd, const dnnl_dim_t *dims, dnnl_data_type_t type,
                                   dnnl_format_tag_t tag) {
    dnnl_memory_desc_t *layout = malloc(sizeof *layout);
    *out = layout;
    return layout ? dnnl_memory_desc_init_by_tag(layout, nd, dims, type, tag) : dnnl_out_of_memory;
}

void onednn_layout_free(const_dnnl_memory_desc_t layout) {
    void *made;
    memcpy(&made, &layout, sizeof made);
    free(made);
}

static dnnl_status_t relu_append(dnnl_post_ops_t after) {
    return dnnl_post_ops_append_eltwise(after, 1, dnnl_eltwise_relu, 0, 0);
}

static dnnl_status_t describe(const struct convolution *d, dnnl_convolution_desc_t *out) {
    switch (d->pass) {
    case PASS_FORWARD:
        return dnnl_convolution_forward_desc_init(out, dnnl_forward_training, d->algorithm, d->x, d->w, d->b, d->y,
                                                  d->stride, d->pad, d->pad);
    case PASS_WEIGHTS:
        return dnnl_convolution_backward_weights_desc_init(out, d->algorithm, d->x, d->w, d->b, d->y, d->stride, d->pad,
                                                           d->pad);
    default:
        return dnnl_convolution_backward_data_desc_init(out, d->algorithm, d->x, d->w, d->y, d->stride, d->pad, d->pad);
    }
}

static dnnl_status_t ask(dnnl_engine_t engine, const struct convolution *d, const_dnnl_primitive_attr_t attr,
                         dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t described;
    dnnl_status_t status = describe(d, &described);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(out, &described, attr, engine, d->hint);
}
#else
dnnl_status_t onednn_layout_create(const_dnnl_memory_desc_t *out, int nd, const dnnl_dim_t *dims, dnnl_data_type_t type,
                                   dnnl_format_tag_t tag) {
    dnnl_memory_desc_t layout = NULL;
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&layout, nd, dims, type, tag);
    *out = layout;
    return status;
}

void onednn_layout_free(const_dnnl_memory_desc_t layout) {
    dnnl_memory_desc_t made;
    memcpy(&made, &layout, sizeof made);
    if (made) dnnl_memory_desc_destroy(made);
}

static dnnl_status_t relu_append(dnnl_post_ops_t after) {
    return dnnl_post_ops_append_eltwise(after, dnnl_eltwise_relu, 0, 0);
}

static dnnl_status_t ask(dnnl_engine_t engine, const struct convolution *d, const_dnnl_primitive_attr_t attr,
                         dnnl_primitive_desc_t *out) {
    static const dnnl_dims_t dense = {0};
    switch (d->pass) {
    case PASS_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(out, engine, dnnl_forward_training, d->algorithm, d->x,
                                                              d->w, d->b, d->y, d->stride, dense, d->pad, d->pad, attr);
    case PASS_WEIGHTS:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            out, engine, d->algorithm, d->x, d->w, d->b, d->y, d->stride, dense, d->pad, d->pad, d->hint, attr);
    default:
        return dnnl_convolution_backward_data_primitive_desc_create(out, engine, d->algorithm, d->x, d->w, d->y,
                                                                    d->stride, dense, d->pad, d->pad, d->hint, attr);
    }
}
#endif

/* ---- what they spell alike ------------------------------------------------------------------ */
static dnnl_status_t relu_set(dnnl_primitive_attr_t attr) {
    dnnl_post_ops_t after = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&after);
    if (status == dnnl_success) status = relu_append(after);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, after);
    if (after) dnnl_post_ops_destroy(after);
    return status;
}

dnnl_status_t onednn_convolution(dnnl_engine_t engine, const struct convolution *d, dnnl_primitive_desc_t *out) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && d->relu) status = relu_set(attr);
    if (status == dnnl_success) status = ask(engine, d, attr, out);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}
