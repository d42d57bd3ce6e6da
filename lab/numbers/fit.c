#include "lab/numbers/fit.h"

#include <stdbool.h>

struct fit fit_line(const struct fit_point *points, int n) {
    double mm = 0, mx = 0, my = 0, xx = 0, xy = 0;
    for (int i = 0; i < n; i++) {
        double t = points[i].seconds, bytes = points[i].bytes, messages = points[i].messages;
        if (!(t > 0)) continue;
        double weight = 1 / (t * t);
        mm += weight * messages * messages;
        mx += weight * messages * bytes, my += weight * messages * t;
        xx += weight * bytes * bytes, xy += weight * bytes * t;
    }
    double det = mm * xx - mx * mx;
    bool line = n > 1 && det > 1e-9 * mm * xx;
    struct fit f = {.beta = line ? (mm * xy - mx * my) / det : 0};
    f.alpha = line ? (my - f.beta * mx) / mm : mm > 0 ? my / mm : 0;
    if (f.alpha < 0) f = (struct fit){0, xx > 0 ? xy / xx : 0};
    if (f.beta < 0) f = (struct fit){mm > 0 ? my / mm : 0, 0};
    return f;
}
