/* The cost of calls: time = alpha * messages + beta * bytes, fitted to measured ones. */
#pragma once

struct fit_point {
    double bytes, seconds;
    double messages; /* one after another */
};
struct fit {
    double alpha, beta; /* seconds a message, seconds a byte; neither is negative */
};
/* Least squares of relative errors: each point weighs 1 / seconds^2, so that small messages decide
 * alpha and large ones beta. Points of no time are left out. */
struct fit fit_line(const struct fit_point *points, int n);
