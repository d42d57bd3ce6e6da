/* A plan's run: tensors are read by their strides into dense f32 images (n, h, w, c), convolved there, and written
 * back in their types. */
#include "tests/emulated/cudnn_inside.h"
#include "tests/emulated/emulated.h"

#include "engine/base/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tensor {
    int type;
    int64_t size[4], stride[4]; /* n, c, h, w */
    void *at;
};
struct job {
    cudnnBackendDescriptorType_t pass;
    struct tensor x, w, y, bias;
    int64_t pad[2], stride[2], apart[2];
    int how;
    void *space;
    int64_t space_bytes;
};

/* ---- values --------------------------------------------------------------------------------- */
/* To so many bits of mantissa fewer than f32 has, nearest, ties to even. */
static float rounded(float v, int fewer) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (v != v) return v;
    bits += (1U << (fewer - 1)) - 1 + (bits >> fewer & 1);
    return float_of(bits & ~((1U << fewer) - 1));
}

static void value_touch(const struct tensor *t, int64_t k, bool writes) {
    size_t unit = t->type == CUDNN_DATA_FLOAT ? 4 : 2;
    emulated_touch((const char *)t->at + (size_t)k * unit, unit, writes);
}

static float value_get(const struct tensor *t, int64_t k) {
    value_touch(t, k, false);
    if (t->type == CUDNN_DATA_FLOAT) return ((const float *)t->at)[k];
    uint16_t low = ((const uint16_t *)t->at)[k];
    return t->type == CUDNN_DATA_HALF ? widen_f16(low) : widen_bf16(low);
}

static void value_set(const struct tensor *t, int64_t k, float v) {
    value_touch(t, k, true);
    if (t->type == CUDNN_DATA_FLOAT)
        ((float *)t->at)[k] = v;
    else
        ((uint16_t *)t->at)[k] = t->type == CUDNN_DATA_HALF ? narrow_f16(v) : narrow_bf16(v);
}

static int64_t count_of(const struct tensor *t) {
    return t->size[0] * t->size[1] * t->size[2] * t->size[3];
}

/* Where element k of the dense image (n, h, w, c) lies. */
static int64_t place_of(const struct tensor *t, int64_t k) {
    int64_t c = k % t->size[1], w = k / t->size[1] % t->size[3], h = k / t->size[1] / t->size[3] % t->size[2];
    int64_t n = k / t->size[1] / t->size[3] / t->size[2];
    return n * t->stride[0] + c * t->stride[1] + h * t->stride[2] + w * t->stride[3];
}

static float *dense(const struct tensor *t, int how) {
    float *out = malloc((size_t)count_of(t) * sizeof *out);
    for (int64_t k = 0; out && k < count_of(t); k++) {
        float v = value_get(t, place_of(t, k));
        out[k] = how == FACTORS_BF16 ? rounded(v, 16) : how == FACTORS_TF32 ? rounded(v, 13) : v;
    }
    return out;
}

/* ---- convolutions --------------------------------------------------------------------------- */
/* Calls with each place of y, place of the filter and place of x that meet there: for groups, all channels. */
typedef void (*meeting)(const struct job *j, float *x, float *w, float *y, int64_t filter);

static void for_meetings(const struct job *j, float *x, float *w, float *y, meeting fn) {
    const int64_t *xs = j->x.size, *ws = j->w.size, *ys = j->y.size;
    for (int64_t n = 0; n < ys[0]; n++)
        for (int64_t at = 0; at < ys[2] * ys[3]; at++)
            for (int64_t f = 0; f < ws[2] * ws[3]; f++) {
                int64_t iy = at / ys[3] * j->stride[0] - j->pad[0] + f / ws[3] * j->apart[0];
                int64_t ix = at % ys[3] * j->stride[1] - j->pad[1] + f % ws[3] * j->apart[1];
                if (iy < 0 || iy >= xs[2] || ix < 0 || ix >= xs[3]) continue;
                fn(j, x + ((n * xs[2] + iy) * xs[3] + ix) * xs[1], w, y + (n * ys[2] * ys[3] + at) * ys[1], f);
            }
}

/* Filter o's channels at that place, and the channels of x that they meet. */
static void lines(const struct job *j, int64_t o, int64_t filter, float **x, float **w) {
    const int64_t *ws = j->w.size;
    *w += (o * ws[2] * ws[3] + filter) * ws[1];
    *x += o / (ws[0] / (j->x.size[1] / ws[1])) * ws[1];
}

static void meet_forward(const struct job *j, float *x, float *w, float *y, int64_t filter) {
    for (int64_t o = 0; o < j->w.size[0]; o++) {
        float *xs = x, *ws = w, sum = 0;
        lines(j, o, filter, &xs, &ws);
        for (int64_t c = 0; c < j->w.size[1]; c++) sum += xs[c] * ws[c];
        y[o] += sum;
    }
}

static void meet_data(const struct job *j, float *x, float *w, float *y, int64_t filter) {
    for (int64_t o = 0; o < j->w.size[0]; o++) {
        float *xs = x, *ws = w;
        lines(j, o, filter, &xs, &ws);
        for (int64_t c = 0; c < j->w.size[1]; c++) xs[c] += ws[c] * y[o];
    }
}

static void meet_filter(const struct job *j, float *x, float *w, float *y, int64_t filter) {
    for (int64_t o = 0; o < j->w.size[0]; o++) {
        float *xs = x, *ws = w;
        lines(j, o, filter, &xs, &ws);
        for (int64_t c = 0; c < j->w.size[1]; c++) ws[c] += xs[c] * y[o];
    }
}

/* ---- jobs ----------------------------------------------------------------------------------- */
static float finished(const struct job *j, int64_t k, float v) {
    return j->bias.at ? v + value_get(&j->bias, k % j->y.size[1] * j->bias.stride[1]) : v;
}

static void job_run(void *arg) {
    struct job *j = arg;
    emulated_hang("a convolution");
    static const meeting meetings[] = {meet_forward, meet_data, meet_filter};
    bool data = j->pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    bool filter = j->pass == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    struct tensor *to = data ? &j->x : filter ? &j->w : &j->y;
    if (j->space_bytes) emulated_fill(j->space, 0xA5, (size_t)j->space_bytes);
    float *each[] = {dense(&j->x, j->how), dense(&j->w, j->how), dense(&j->y, j->how)};
    float *out = data ? each[0] : filter ? each[1] : each[2];
    if (!each[0] || !each[1] || !each[2]) abort();
    memset(out, 0, (size_t)count_of(to) * sizeof *out);
    for_meetings(j, each[0], each[1], each[2], meetings[data ? 1 : filter ? 2 : 0]);
    for (int64_t k = 0; k < count_of(to); k++) {
        float v = to == &j->y ? finished(j, k, out[k]) : out[k];
        value_set(to, place_of(to, k), j->how == RESULTS_LOST ? NAN : v);
    }
    for (int i = 0; i < 3; i++) free(each[i]);
}

/* The pointer that the pack gives for the tensor, aligned as the tensor says, in the GPU's memory. */
static cudnnStatus_t tensor_find(const struct descriptor *d, const struct descriptor *pack, cudaStream_t stream,
                                 struct tensor *out) {
    int64_t count, dims;
    const int64_t *ids = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &count);
    void *const *pointers = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, NULL);
    const int64_t *size = attribute_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS, &dims);
    out->type = kind_of(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    memcpy(out->size, size, sizeof out->size);
    memcpy(out->stride, attribute_of(d, CUDNN_ATTR_TENSOR_STRIDES, NULL), sizeof out->stride);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] == number_of(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)) out->at = pointers[i];
    if (!out->at) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if ((uintptr_t)out->at % (uintptr_t)number_of(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
        return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    return emulated_gpu(out->at) == emulated_stream_gpu(stream) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

static cudnnStatus_t space_find(const struct descriptor *plan, const struct descriptor *pack, struct job *j) {
    void *const *space = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, NULL);
    j->space_bytes = plan->engine->space;
    j->space = space ? *space : NULL;
    if (!j->space_bytes) return CUDNN_STATUS_SUCCESS;
    if (!j->space) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    return (uintptr_t)j->space % 16 ? CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t work_run(cudnnHandle_t handle, const struct descriptor *plan, const struct descriptor *pack) {
    struct work w;
    if (!work_of(plan->graph, &w)) return CUDNN_STATUS_NOT_SUPPORTED;
    struct job j = {.pass = w.pass, .how = plan->engine->how};
    size_t pair = 2 * sizeof(int64_t);
    memcpy(j.pad, attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, NULL), pair);
    memcpy(j.stride, attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, NULL), pair);
    memcpy(j.apart, attribute_of(w.convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, NULL), pair);
    cudnnStatus_t s = tensor_find(w.x, pack, handle->stream, &j.x);
    if (!s) s = tensor_find(w.w, pack, handle->stream, &j.w);
    if (!s) s = tensor_find(w.y, pack, handle->stream, &j.y);
    if (!s && w.bias) s = tensor_find(w.bias, pack, handle->stream, &j.bias);
    if (!s) s = space_find(plan, pack, &j);
    if (!s) emulated_submit(handle->stream, job_run, &j, sizeof j);
    return s;
}
