/* The factor that clips a gradient, from the sums of squares of its blocks. The blocks are added in their order, so it
 * does not matter who summed which. */
#include "engine/optim/optim.h"

#include <math.h>

float clip_scale(const double *partial, int64_t blocks, double most, double *norm) {
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += partial[i];
    *norm = sqrt(sum);
    double scale = most / (*norm + 1e-6);
    return (float)(scale > 1 ? 1 : scale); /* not a number stays so: the caller sees it in the norm */
}
