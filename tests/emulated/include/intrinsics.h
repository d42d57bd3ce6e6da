/* The functions of a GPU that g++ has not: each in the sense of the CUDA C programming guide. Included by
 * cuda_runtime.h alone. */
#pragma once

template <typename A, typename B> static inline constexpr std::common_type_t<A, B> min(A a, B b) {
    using C = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<C>::value)
        return static_cast<C>(fmin(static_cast<C>(a), static_cast<C>(b)));
    else
        return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <typename A, typename B> static inline constexpr std::common_type_t<A, B> max(A a, B b) {
    using C = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point<C>::value)
        return static_cast<C>(fmax(static_cast<C>(a), static_cast<C>(b)));
    else
        return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}

/* ---- memory ---- */
template <typename T> static inline T __ldg(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcs(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcg(const T *p) {
    return *p;
}
template <typename T> static inline T __ldca(const T *p) {
    return *p;
}
template <typename T, typename V> static inline void __stcs(T *p, V v) {
    *p = v;
}
template <typename T, typename V> static inline void __stcg(T *p, V v) {
    *p = v;
}
static inline void __threadfence(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_system(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
template <typename T> using emulated_whole = std::enable_if_t<std::is_integral<T>::value, T>;
template <typename T> static inline emulated_whole<T> atomicAdd(T *p, std::common_type_t<T> v) {
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline emulated_whole<T> atomicSub(T *p, std::common_type_t<T> v) {
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline emulated_whole<T> atomicOr(T *p, std::common_type_t<T> v) {
    return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline emulated_whole<T> atomicAnd(T *p, std::common_type_t<T> v) {
    return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline emulated_whole<T> atomicXor(T *p, std::common_type_t<T> v) {
    return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);
}
template <typename T> static inline emulated_whole<T> atomicExch(T *p, std::common_type_t<T> v) {
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
template <typename T>
static inline emulated_whole<T> atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> v) {
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <typename T> static inline emulated_whole<T> atomicMax(T *p, std::common_type_t<T> v) {
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}
template <typename T> static inline emulated_whole<T> atomicMin(T *p, std::common_type_t<T> v) {
    T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

/* ---- bits ---- */
template <typename To, typename From> static inline To emulated_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) {
    return emulated_bits<unsigned>(x);
}
static inline int __float_as_int(float x) {
    return emulated_bits<int>(x);
}
static inline float __uint_as_float(unsigned x) {
    return emulated_bits<float>(x);
}
static inline float __int_as_float(int x) {
    return emulated_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return emulated_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return emulated_bits<double>(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
static inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
static inline int __mulhi(int a, int b) {
    return static_cast<int>(static_cast<int64_t>(a) * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
    uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) y |= static_cast<unsigned>(both >> 8 * (select >> 4 * i & 7) & 255) << 8 * i;
    return y;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

/* ---- numbers: the fast ones are the exact ones here ---- */
/* glibc has functions of these names */
#define __expf emulated_expf
#define __exp10f emulated_exp10f
#define __logf emulated_logf
#define __log2f emulated_log2f
#define __log10f emulated_log10f
#define __sinf emulated_sinf
#define __cosf emulated_cosf
#define __tanf emulated_tanf
#define __tanhf emulated_tanhf
#define __powf emulated_powf
#define __sincosf emulated_sincosf
#define EMULATED_UNARY(name, as)                                                                                       \
    static inline float name(float x) {                                                                                \
        return as;                                                                                                     \
    }
EMULATED_UNARY(emulated_expf, expf(x))
EMULATED_UNARY(emulated_exp10f, powf(10, x))
EMULATED_UNARY(emulated_logf, logf(x))
EMULATED_UNARY(emulated_log2f, log2f(x))
EMULATED_UNARY(emulated_log10f, log10f(x))
EMULATED_UNARY(emulated_sinf, sinf(x))
EMULATED_UNARY(emulated_cosf, cosf(x))
EMULATED_UNARY(emulated_tanf, tanf(x))
EMULATED_UNARY(emulated_tanhf, tanhf(x))
EMULATED_UNARY(rsqrtf, 1.0f / sqrtf(x))
EMULATED_UNARY(__frsqrt_rn, 1.0f / sqrtf(x))
EMULATED_UNARY(__frcp_rn, 1.0f / x)
EMULATED_UNARY(__fsqrt_rn, sqrtf(x))
EMULATED_UNARY(__saturatef, x > 0 ? fminf(x, 1) : 0.0f)
EMULATED_UNARY(normcdff, 0.5f * erfcf(-x * 0.70710678118654752f))
#undef EMULATED_UNARY
static inline double rsqrt(double x) {
    return 1 / sqrt(x);
}
static inline float emulated_powf(float x, float y) {
    return powf(x, y);
}
static inline void emulated_sincosf(float x, float *s, float *c) {
    *s = sinf(x);
    *c = cosf(x);
}
static inline float __fadd_rn(float x, float y) {
    return x + y;
}
static inline float __fsub_rn(float x, float y) {
    return x - y;
}
static inline float __fmul_rn(float x, float y) {
    return x * y;
}
static inline float __fdiv_rn(float x, float y) {
    return x / y;
}
static inline float __fdividef(float x, float y) {
    return x / y;
}
static inline float __fmaf_rn(float x, float y, float z) {
    return fmaf(x, y, z);
}
static inline double __dadd_rn(double x, double y) {
    return x + y;
}
static inline double __dmul_rn(double x, double y) {
    return x * y;
}
static inline double __fma_rn(double x, double y, double z) {
    return fma(x, y, z);
}
template <typename T> static inline T emulated_whole_number(double x) {
    using L = std::numeric_limits<T>;
    if (std::isnan(x)) return 0;
    if (x <= static_cast<double>(L::min())) return L::min();
    return x >= static_cast<double>(L::max()) ? L::max() : static_cast<T>(x);
}
static inline int __float2int_rn(float x) {
    return emulated_whole_number<int>(rintf(x));
}
static inline int __float2int_rz(float x) {
    return emulated_whole_number<int>(truncf(x));
}
static inline int __float2int_rd(float x) {
    return emulated_whole_number<int>(floorf(x));
}
static inline int __float2int_ru(float x) {
    return emulated_whole_number<int>(ceilf(x));
}
static inline unsigned __float2uint_rn(float x) {
    return emulated_whole_number<unsigned>(rintf(x));
}
static inline unsigned __float2uint_rz(float x) {
    return emulated_whole_number<unsigned>(truncf(x));
}
static inline long long __float2ll_rn(float x) {
    return emulated_whole_number<long long>(rintf(x));
}
static inline float __int2float_rn(int x) {
    return static_cast<float>(x);
}
static inline float __uint2float_rn(unsigned x) {
    return static_cast<float>(x);
}
static inline float __ll2float_rn(long long x) {
    return static_cast<float>(x);
}
static inline float __double2float_rn(double x) {
    return static_cast<float>(x);
}
__attribute__((noreturn)) static inline void __trap(void) {
    emulated_trap("__trap");
}
