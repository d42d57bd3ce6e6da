/* How often each training sample is drawn, where data.sampling asks for more than each of them once. */
#pragma once
#include "engine/data/dataset.h"

struct sample_weights {
    double *upto; /* (size): the sums that sampler.upto borrows; NULL: each is taken once */
    uint32_t crc; /* of the weights that a file gave */
    double worth; /* as many samples of equal weight would have draws of the same variance: (sum w)^2 / sum w^2 */
};
/* ERR_CONFIG: the set does not know what is asked of it; ERR_DATA: the message names file and line. */
MUST_CHECK enum error sample_weights_open(const struct data_config *c, const struct dataset *d,
                                          struct sample_weights *out);
void sample_weights_close(struct sample_weights *w);
