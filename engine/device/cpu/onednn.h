/* oneDNN's C API where its versions 2 and 3 differ: a description of memory is a handle that its
 * maker frees, and a convolution is asked for in one call. The rest of the API is one in both, with
 * a handle where it takes a description. */
#pragma once
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>

#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *const_dnnl_memory_desc_t;
#endif

/* Dense memory in the order that 'tag' names. */
dnnl_status_t onednn_layout_create(const_dnnl_memory_desc_t *out, int nd, const dnnl_dim_t *dims, dnnl_data_type_t type,
                                   dnnl_format_tag_t tag);
/* NULL is allowed. */
void onednn_layout_free(const_dnnl_memory_desc_t layout);

enum pass { PASS_FORWARD, PASS_WEIGHTS, PASS_DATA };
struct convolution {
    enum pass pass;
    dnnl_alg_kind_t algorithm;
    const_dnnl_memory_desc_t x, w, b, y; /* or their gradients; b: NULL without a bias */
    const dnnl_dim_t *stride, *pad;
    bool relu;                        /* forward: after it */
    const_dnnl_primitive_desc_t hint; /* backward: the forward pass */
};
/* The best implementation that the library has for it, which takes its scratch from its caller. */
dnnl_status_t onednn_convolution(dnnl_engine_t engine, const struct convolution *d, dnnl_primitive_desc_t *out);

/* Whether the library uses these instructions here. They are x86's: false on other processors, on
 * which the library's numbers mean nothing. */
bool onednn_uses(dnnl_cpu_isa_t isa);

/* The library uses no more than these instructions from here on; for before its first use. */
void onednn_limit(dnnl_cpu_isa_t isa);
