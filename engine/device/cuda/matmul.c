/* Products through cuBLASLt.
 *
 * Which kernel computes a product is the library's advice for its shape, asked once and remembered for all ops of that
 * shape on that GPU. The same advice gives the same bits in every run: it depends on the shape, the GPU and the
 * library's version, and what is allowed to split k adds its parts in f32, in its own order. Splits that add in
 * the output's type or in place are not allowed: they round more often. */
#include "engine/device/cuda/matmul.h"

#include <inttypes.h>
#include <pthread.h>

#define BLAS(call, what)                                                                                               \
    do {                                                                                                               \
        cublasStatus_t blas_ = (call);                                                                                 \
        if (blas_ != CUBLAS_STATUS_SUCCESS) return cublas_failed(blas_, what);                                         \
    } while (0)

static cudaDataType_t type_of(enum precision p) {
    if (p == PRECISION_BF16) return CUDA_R_16BF;
    return p == PRECISION_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

static bool has_aux(cublasLtEpilogue_t e) {
    return e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool has_bias(cublasLtEpilogue_t e) {
    return e & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
}

/* ---- descriptions --------------------------------------------------------------------------- */
static enum error desc_set(struct matmul *m, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
    BLAS(blaslt.MatmulDescSetAttribute(m->desc, what, value, bytes), "describing a product");
    return ERR_NONE;
}

/* The library reads alignment from pointers: here are some that are as badly aligned as they may become. */
static enum error desc_pointers(struct matmul *m, const void *bias, void *aux) {
    if (has_bias(m->product.epilogue)) TRY(desc_set(m, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    if (has_aux(m->product.epilogue)) TRY(desc_set(m, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    return ERR_NONE;
}

static enum error matmul_describe(struct matmul *m) {
    const struct matmul_product *p = &m->product;
    int32_t a = p->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = p->epilogue;
    bool tf32 = p->precision == PRECISION_TF32;
    BLAS(blaslt.MatmulDescCreate(&m->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
         "describing a product");
    TRY(desc_set(m, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    TRY(desc_set(m, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    TRY(desc_set(m, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (has_aux(p->epilogue)) TRY(desc_set(m, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->aux_ld, sizeof p->aux_ld));
    return desc_pointers(m, (const void *)MATMUL_ALIGNMENT, (void *)MATMUL_ALIGNMENT);
}

struct matrix_size {
    int64_t rows, cols, ld;
};
static enum error layout_of(cublasLtMatrixLayout_t *out, cudaDataType_t type, struct matrix_size s) {
    BLAS(blaslt.MatrixLayoutCreate(out, type, (uint64_t)s.rows, (uint64_t)s.cols, s.ld ? s.ld : s.rows),
         "describing a matrix");
    return ERR_NONE;
}

/* A factor of that size, or turned. */
static struct matrix_size size_of(int64_t rows, int64_t cols, bool turned, int64_t ld) {
    return turned ? (struct matrix_size){cols, rows, ld} : (struct matrix_size){rows, cols, ld};
}

static enum error lay_out(struct matmul *m) {
    const struct matmul_product *p = &m->product;
    cudaDataType_t in = type_of(p->precision), out = p->d_f32 ? CUDA_R_32F : in;
    TRY(layout_of(&m->a, in, size_of(p->m, p->k, p->a_turned, p->a_ld)));
    TRY(layout_of(&m->b, in, size_of(p->k, p->n, p->b_turned, p->b_ld)));
    return layout_of(&m->d, out, size_of(p->m, p->n, false, p->d_ld));
}

/* ---- the library's advice ------------------------------------------------------------------- */
static enum error preference_set(cublasLtMatmulPreference_t f, cublasLtMatmulPreferenceAttributes_t what,
                                 const void *value, size_t bytes) {
    BLAS(blaslt.MatmulPreferenceSetAttribute(f, what, value, bytes), "asking for a product");
    return ERR_NONE;
}

static enum error preference_fill(cublasLtMatmulPreference_t f) {
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t space = BLAS_SPACE;
    uint32_t alignment = MATMUL_ALIGNMENT;
    uint32_t splits = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    TRY(preference_set(f, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space));
    TRY(preference_set(f, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &splits, sizeof splits));
    for (size_t i = 0; i < sizeof aligned / sizeof *aligned; i++)
        TRY(preference_set(f, aligned[i], &alignment, sizeof alignment));
    return ERR_NONE;
}

/* What the library says of a product that it has no kernel for, or success with a count of 0. */
static enum error no_way(const struct matmul_product *p, cublasStatus_t why) {
    bool refused =
        why == CUBLAS_STATUS_SUCCESS || why == CUBLAS_STATUS_NOT_SUPPORTED || why == CUBLAS_STATUS_INVALID_VALUE;
    if (!refused) return cublas_failed(why, "asking for a product");
    return FAIL(ERR_CONFIG,
                "cuBLASLt knows no way to multiply (%" PRId64 ", %" PRId64 ") by (%" PRId64 ", %" PRId64
                ") in %s here: %s\nanother precision, or a layer with a multiple of 8 features, may have one",
                p->m, p->k, p->k, p->n, precision_name(p->precision),
                why == CUBLAS_STATUS_SUCCESS ? "none fits" : blaslt.GetStatusString(why));
}

static enum error matmul_ask(struct matmul *m, struct cuda *c) {
    cublasLtMatmulPreference_t f = NULL;
    cublasLtMatmulHeuristicResult_t best = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    int found = 0;
    BLAS(blaslt.MatmulPreferenceCreate(&f), "asking for a product");
    enum error err = preference_fill(f);
    if (err == ERR_NONE) {
        cublasStatus_t s = blaslt.MatmulAlgoGetHeuristic(c->blas, m->desc, m->a, m->b, m->d, m->d, f, 1, &best, &found);
        if (s == CUBLAS_STATUS_SUCCESS && found > 0) s = best.state;
        if (s != CUBLAS_STATUS_SUCCESS || found < 1) err = no_way(&m->product, s);
    }
    blaslt.MatmulPreferenceDestroy(f);
    m->algo = best.algo;
    return err;
}

/* Advice by GPU and product; the oldest is forgotten. */
struct advice {
    int unit;
    bool used;
    struct matmul_product product;
    cublasLtMatmulAlgo_t algo;
};
enum { ADVICE = 256 };
static struct advice advice[ADVICE];
static unsigned advice_next;
static pthread_mutex_t advice_mutex = PTHREAD_MUTEX_INITIALIZER;

static bool product_same(const struct matmul_product *a, const struct matmul_product *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->a_turned == b->a_turned && a->b_turned == b->b_turned &&
           a->a_ld == b->a_ld && a->b_ld == b->b_ld && a->d_ld == b->d_ld && a->precision == b->precision &&
           a->d_f32 == b->d_f32 && a->epilogue == b->epilogue && a->aux_ld == b->aux_ld;
}

static bool answer_recall(struct matmul *m, int unit) {
    bool found = false;
    pthread_mutex_lock(&advice_mutex);
    for (int i = 0; i < ADVICE && !found; i++) {
        found = advice[i].used && advice[i].unit == unit && product_same(&advice[i].product, &m->product);
        if (found) m->algo = advice[i].algo;
    }
    pthread_mutex_unlock(&advice_mutex);
    return found;
}

static void answer_remember(const struct matmul *m, int unit) {
    pthread_mutex_lock(&advice_mutex);
    advice[advice_next++ % ADVICE] = (struct advice){unit, true, m->product, m->algo};
    pthread_mutex_unlock(&advice_mutex);
}

/* ---- products ------------------------------------------------------------------------------- */
static enum error matmul_plan(struct matmul *m, struct cuda *c) {
    int unit = c->base.params.unit;
    TRY(matmul_describe(m));
    TRY(lay_out(m));
    if (answer_recall(m, unit)) return ERR_NONE;
    TRY(matmul_ask(m, c));
    answer_remember(m, unit);
    return ERR_NONE;
}

enum error matmul_init(struct matmul *m, struct cuda *c, const struct matmul_product *p) {
    *m = (struct matmul){.product = *p};
    enum error err = cuda_enter(c);
    if (err == ERR_NONE) err = matmul_plan(m, c);
    if (err != ERR_NONE) matmul_fini(m);
    return err;
}

void matmul_fini(struct matmul *m) {
    if (m->desc) blaslt.MatmulDescDestroy(m->desc);
    if (m->a) blaslt.MatrixLayoutDestroy(m->a);
    if (m->b) blaslt.MatrixLayoutDestroy(m->b);
    if (m->d) blaslt.MatrixLayoutDestroy(m->d);
    *m = (struct matmul){0};
}

enum error matmul_run(struct matmul *m, struct cuda *c, const struct matmul_args *a) {
    float one = 1, beta = a->add || a->joined ? 1 : 0;
    TRY(cuda_enter(c));
    TRY(desc_pointers(m, a->bias, a->aux));
    BLAS(blaslt.Matmul(c->blas, m->desc, &one, a->a, m->a, a->b, m->b, &beta, a->joined ? a->joined : a->d, m->d, a->d,
                       m->d, &m->algo, c->blas_space, BLAS_SPACE, c->stream[LANE_COMPUTE]),
         "a product");
    return ERR_NONE;
}
