/* Functions of real numbers whose bits are the same on every processor, with every compiler and library, and whatever
 * becomes of denormals: weights, samples and losses depend on these, never on the system's. NaN gives NaN, and what the
 * standard says of zeros and infinities holds. */
#pragma once

/* These are within 0.51 units in the last place. */
double real_exp(double x);
double real_log(double x);
double real_pow(double x, double y); /* exact where the power is a double */
double real_sin(double x);
double real_cos(double x);
/* These, which plain C's oracle alone asks for, are within 8. */
double real_tanh(double x);
double real_erf(double x);
