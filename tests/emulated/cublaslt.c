/* A libcublasLt.so.13 that multiplies on the host, as far as the engine uses it, and as strict as its documentation:
 * an attribute that is not here, a size that is not its own, a mix of types that the library has no kernel for, or
 * memory worse aligned than was said when its advice was asked, are errors. Its advice holds for the product that it
 * was asked about and for no other.
 *
 * Products of f32 have no epilogue with an auxiliary output here, and those with a row count that 8 does not divide
 * have none but the default: so callers' own ways are tried too.
 * ENGINE_EMULATED_CUBLASLT_VERSION=number: what GetVersion says. */
#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include "tests/emulated/cublaslt_product.h"
#include "tests/emulated/emulated.h"

#include <stdlib.h>
#include <string.h>

#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) return CUBLAS_STATUS_INVALID_VALUE;                                                          \
    } while (0)
/* Lets ENGINE_EMULATED_FAIL=function:n have its way. */
#define MAY_FAIL(status)                                                                                               \
    do {                                                                                                               \
        if (emulated_fail(__func__)) return CUBLAS_STATUS_##status;                                                    \
    } while (0)

enum { MAGIC = 0x626c61, SPACE = 4096 };
struct handle {
    int magic, gpu;
};
struct desc {
    cublasComputeType_t compute;
    int32_t turned[2]; /* a, b */
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};
struct preference {
    uint64_t space;
    uint32_t alignment[4], splits; /* a, b, c, d */
};
/* What an algorithm holds: the product that it is for. */
struct choice {
    uint64_t magic, of, alignment[4];
};
_Static_assert(sizeof(struct choice) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm is 64 bytes");

size_t cublasLtGetVersion(void) {
    const char *given = getenv("ENGINE_EMULATED_CUBLASLT_VERSION");
    return given ? (size_t)atol(given) : CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}

/* ---- handles and descriptions --------------------------------------------------------------- */
static void *zeroed(size_t bytes) {
    return calloc(1, bytes);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    MAY_FAIL(NOT_INITIALIZED);
    struct handle *h = zeroed(sizeof *h);
    if (!h) return CUBLAS_STATUS_ALLOC_FAILED;
    if (cudaGetDevice(&h->gpu) != cudaSuccess) {
        free(h);
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    h->magic = MAGIC;
    *out = (cublasLtHandle_t)h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale) {
    MAY_FAIL(ALLOC_FAILED);
    NEED(compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32);
    NEED(scale == CUDA_R_32F);
    struct desc *d = zeroed(sizeof *d);
    if (!d) return CUBLAS_STATUS_ALLOC_FAILED;
    d->compute = compute;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)d;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t take(void *to, size_t size, const void *from, size_t bytes) {
    NEED(from && bytes == size);
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
                                              const void *from, size_t bytes) {
    struct desc *d = (struct desc *)desc;
    MAY_FAIL(INVALID_VALUE);
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&d->turned[0], sizeof d->turned[0], from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&d->turned[1], sizeof d->turned[1], from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&d->epilogue, sizeof d->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&d->bias, sizeof d->bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&d->aux, sizeof d->aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&d->aux_ld, sizeof d->aux_ld, from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
    MAY_FAIL(ALLOC_FAILED);
    NEED(type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F);
    NEED(rows > 0 && cols > 0 && ld >= (int64_t)rows);
    struct matrix *m = zeroed(sizeof *m);
    if (!m) return CUBLAS_STATUS_ALLOC_FAILED;
    *m = (struct matrix){.type = type, .rows = (int64_t)rows, .cols = (int64_t)cols, .ld = ld, .batch = 1};
    *out = (cublasLtMatrixLayout_t)m;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
                                                const void *from, size_t bytes) {
    struct matrix *m = (struct matrix *)layout;
    MAY_FAIL(INVALID_VALUE);
    switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return take(&m->batch, sizeof m->batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return take(&m->apart, sizeof m->apart, from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    MAY_FAIL(ALLOC_FAILED);
    struct preference *p = zeroed(sizeof *p);
    if (!p) return CUBLAS_STATUS_ALLOC_FAILED;
    for (int i = 0; i < 4; i++) p->alignment[i] = 256;
    p->splits = CUBLASLT_REDUCTION_SCHEME_MASK;
    *out = (cublasLtMatmulPreference_t)p;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void *from,
                                                    size_t bytes) {
    struct preference *p = (struct preference *)preference;
    MAY_FAIL(INVALID_VALUE);
    switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&p->space, sizeof p->space, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(&p->splits, sizeof p->splits, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&p->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof *p->alignment, from,
                    bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* ---- what can be multiplied ----------------------------------------------------------------- */
static bool same_layout(const struct matrix *x, const struct matrix *y) {
    return x->type == y->type && x->rows == y->rows && x->cols == y->cols && x->ld == y->ld && x->batch == y->batch &&
           x->apart == y->apart;
}

static int64_t side(const struct matrix *m, bool turned, bool second) {
    return turned != second ? m->cols : m->rows;
}

/* Shapes that fit; p gets all but the pointers. */
static cublasStatus_t describe(const struct desc *d, const struct matrix *a, const struct matrix *b,
                               const struct matrix *c, const struct matrix *y, struct product_job *p) {
    NEED(d && a && b && c && y && same_layout(c, y));
    for (int i = 0; i < 2; i++) NEED(d->turned[i] == CUBLAS_OP_N || d->turned[i] == CUBLAS_OP_T);
    *p = (struct product_job){.a = *a, .b = *b, .d = *y, .epilogue = d->epilogue, .aux_ld = d->aux_ld};
    p->a_turned = d->turned[0] == CUBLAS_OP_T, p->b_turned = d->turned[1] == CUBLAS_OP_T;
    p->tf32 = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    p->k = side(a, p->a_turned, true);
    NEED(side(a, p->a_turned, false) == y->rows && side(b, p->b_turned, true) == y->cols);
    NEED(side(b, p->b_turned, false) == p->k);
    NEED(a->batch == b->batch && a->batch == y->batch && a->batch >= 1);
    return CUBLAS_STATUS_SUCCESS;
}

/* The kernels that there are. */
static bool has_types(const struct product_job *p) {
    if (p->a.type != p->b.type) return false;
    if (p->tf32 && p->a.type != CUDA_R_32F) return false;
    return p->d.type == CUDA_R_32F || p->d.type == p->a.type;
}

static bool has_epilogue(const struct product_job *p) {
    switch (p->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
        return true;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
        return p->d.rows % 8 == 0;
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return p->d.rows % 8 == 0 && p->d.type != CUDA_R_32F && p->aux_ld % 8 == 0 && p->aux_ld >= p->d.rows;
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return p->d.rows % 8 == 0 && p->d.batch == 1;
    default:
        return false;
    }
}

static uint64_t mix(uint64_t h, uint64_t v) {
    return (h ^ v) * 0x100000001b3u + (h >> 29);
}

static uint64_t name_of(const struct product_job *p, int gpu) {
    const struct matrix *m[] = {&p->a, &p->b, &p->d};
    uint64_t h = mix(mix(mix(MAGIC, (uint64_t)gpu), p->epilogue), (uint64_t)p->aux_ld);
    h = mix(h, (uint64_t)(p->a_turned + 2 * p->b_turned + 4 * p->tf32));
    for (int i = 0; i < 3; i++) {
        h = mix(mix(h, (uint64_t)m[i]->type), (uint64_t)m[i]->rows);
        h = mix(mix(h, (uint64_t)m[i]->cols), (uint64_t)m[i]->ld);
        h = mix(mix(h, (uint64_t)m[i]->batch), (uint64_t)m[i]->apart);
    }
    return h;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t out[], int *count) {
    const struct handle *h = (const struct handle *)handle;
    const struct preference *f = (const struct preference *)preference;
    struct product_job p;
    MAY_FAIL(NOT_SUPPORTED);
    NEED(h && h->magic == MAGIC && f && most >= 1 && out && count);
    *count = 0;
    cublasStatus_t s = describe((struct desc *)desc, (struct matrix *)a, (struct matrix *)b, (struct matrix *)c,
                                (struct matrix *)d, &p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    if (!has_types(&p) || !has_epilogue(&p) || f->space < SPACE) return CUBLAS_STATUS_NOT_SUPPORTED;
    struct choice choice = {.magic = MAGIC, .of = name_of(&p, h->gpu)};
    for (int i = 0; i < 4; i++) choice.alignment[i] = f->alignment[i];
    out[0] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = SPACE, .state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1};
    memcpy(&out[0].algo, &choice, sizeof choice);
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ------------------------------------------------------------------------------- */
static bool lies(const void *p, int gpu, uint64_t alignment) {
    return p && emulated_gpu(p) == gpu && (uintptr_t)p % alignment == 0;
}

static bool has_memory(const struct product_job *p, const struct choice *c, int gpu) {
    bool bias = p->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB),
         aux = p->epilogue & 128;
    return lies(p->from_a, gpu, c->alignment[0]) && lies(p->from_b, gpu, c->alignment[1]) &&
           lies(p->from_c, gpu, c->alignment[2]) && lies(p->to, gpu, c->alignment[3]) &&
           (!bias || lies(p->bias, gpu, 16)) && (!aux || lies(p->aux, gpu, 16));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *space,
                              size_t space_bytes, cudaStream_t stream) {
    const struct handle *h = (const struct handle *)handle;
    const struct desc *described = (const struct desc *)desc;
    struct choice choice;
    struct product_job p;
    MAY_FAIL(EXECUTION_FAILED);
    NEED(h && h->magic == MAGIC && alpha && beta && algo);
    NEED(emulated_stream_gpu(stream) == h->gpu);
    cublasStatus_t s = describe(described, (struct matrix *)a_layout, (struct matrix *)b_layout,
                                (struct matrix *)c_layout, (struct matrix *)d_layout, &p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    memcpy(&choice, algo, sizeof choice);
    NEED(choice.magic == MAGIC && choice.of == name_of(&p, h->gpu));
    p.from_a = a, p.from_b = b, p.from_c = c, p.to = d, p.bias = described->bias, p.aux = described->aux;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    NEED(has_memory(&p, &choice, h->gpu) && lies(space, h->gpu, 16) && space_bytes >= SPACE);
    emulated_submit(stream, product_run, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}
