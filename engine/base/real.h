/* Functions of real numbers that give the same bits on every processor, with every compiler and library, and with any
 * treatment of denormals. Weights, samples and losses depend on these functions, never on the system's. NaN gives
 * NaN, and zeros and infinities give what the standard says. */
#pragma once
#include <stdint.h>
#include <string.h>

/* These are within 0.51 units in the last place. */
double real_exp(double x);
double real_log(double x);
double real_pow(double x, double y); /* exact where the power is a double */
double real_sin(double x);
double real_cos(double x);
/* These, which plain C's oracle alone asks for, are within 8. */
double real_tanh(double x);
double real_erf(double x);

static inline uint64_t real_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double real_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
