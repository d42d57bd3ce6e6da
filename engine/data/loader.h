/* The loader: threads that read, augment and normalise the shards of the steps to come into buffers
 * made beforehand. What it gives is a pure function of (config, seed, epoch, step, shard): never of
 * the number of threads or ranks. */
#pragma once
#include "engine/base/memory.h"
#include "engine/data/dataset.h"
#include "engine/data/sampler.h"

/* value = (raw - mean) * scale, per channel of a plane, per column of a table, else one pair for all features; targets
 * that are values likewise. */
enum { CHANNELS_MAX = 1024 };
struct normalization {
    int channels; /* 1: one pair for all values */
    float mean[CHANNELS_MAX], scale[CHANNELS_MAX];
    int targets; /* 1: one pair for all; 0: they are learned as they are */
    float target_mean[CHANNELS_MAX], target_scale[CHANNELS_MAX];
};
/* The user's unit of target k in that of the network's outputs. */
static inline double normalization_unit(const struct normalization *n, int64_t k) {
    return n->targets ? 1 / (double)n->target_scale[n->targets > 1 ? k : 0] : 1;
}
/* Outputs y[0..n) of a network in the unit of its targets. */
void normalization_undo(const struct normalization *n, float *y, int64_t count);
/* The values of 'normalize' for the training set d, the same on every rank. auto: mean and standard deviation of the
 * first 1000 samples of a generated set, of all rows of a table, else of 1000 samples from everywhere. A given mean and
 * std are in units of x / 255 for bytes, as in PyTorch's Normalize after
 * ToTensor. ERR_CONFIG if they do not fit the set. */
MUST_CHECK enum error normalization_find(struct dataset *d, const struct data_config *c, struct normalization *out);
/* Mean and deviation of channel k in those units, of which a checkpoint loses nothing. */
void normalization_tell(const struct dataset *d, const struct normalization *n, int k, double *mean, double *std);
/* Checks that the configuration does not give another mean and deviation than n, those of a network that was trained
 * on d; auto gives none. ERR_CONFIG names them. */
MUST_CHECK enum error normalization_check(struct dataset *d, const struct data_config *c,
                                          const struct normalization *n);
bool normalization_equal(const struct normalization *a, const struct normalization *b);
/* "mean 0.4914 0.4822 0.4465, deviation 0.247 0.2435 0.2616" */
char *normalization_words(const struct dataset *d, const struct normalization *n, char out[640]);
/* Whether training shards of this set have 'others' and 'shares'. */
bool data_config_mixes(const struct data_config *c, const struct dataset *d);
/* Checks the form of augment and normalize for the config reader. */
void data_config_check(const struct data_config *c, struct config_errors *e);

struct shard {       /* one shard of one step, ready to compute on */
    int index;       /* v */
    int64_t n;       /* samples; may be 0 */
    float *x;        /* (n, shape) */
    int32_t *labels; /* (n, data->labels), or NULL */
    /* Of the second samples that are mixed in, in smaller part: (n, data->labels), and the part (n) that is of 'labels'.
     * NULL: nothing is mixed, or values are, which target is the mixture of. */
    int32_t *others;
    float *shares;
    float *target; /* (n, targets), or NULL */
    uint64_t *ids; /* (n), each visit's counter: epoch * total + position in the epoch's order;
                        not training: the sample's number */
};
struct step_batch {
    int64_t epoch, step;  /* step within the epoch */
    int64_t samples;      /* of the global batch */
    int nshards;          /* this rank's, as they were asked for */
    struct shard *shards; /* consecutive: the arrays of each shard begin where those of the previous one end */
};
/* Sets the sizes of the shards in this step, and their places after the first one's. */
void shards_place(struct step_batch *b, const struct sampler *s, const struct dataset *d);
struct loader_params {
    struct dataset *data; /* borrowed */
    const struct data_config *config;
    const struct normalization *norm; /* found on the training set, copied; NULL: found on 'data' */
    struct sampler sampler;
    const int *shards; /* which this rank takes, in which order; copied */
    int nshards;
    bool training;                  /* true: augment, and continue with the next epoch forever; false: one pass in
                                     * order, without augmentation or dropping; padding if the sampler says so */
    int workers;                    /* number of threads; 0: added until the caller does not wait, at most one for
                                     * each core */
    int depth;                      /* steps ahead, >= 1 */
    const struct allocator *memory; /* of the batches; copied; NULL: the heap */
    int64_t epoch, step; /* where to begin; a step at or beyond the end of its epoch is one of a later epoch */
};
struct loader;
MUST_CHECK enum error loader_open(const struct loader_params *p, struct loader **out);
/* The next step's batch, borrowed until the next call. Waits if it is not ready. *out is NULL after
 * the last (not training). Allocates nothing once open. */
MUST_CHECK enum error loader_next(struct loader *l, const struct step_batch **out);
/* Processor seconds that its threads have used. */
double loader_seconds(const struct loader *l);
/* The batch that was given last is not read any more. */
void loader_take_back(struct loader *l);
void loader_close(struct loader *l);
/* The process's cores, of which a loader never needs more than 16. */
int loader_cores(void);
