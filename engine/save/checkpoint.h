/* Checkpoints: ckpt/step-N/{model,optim,state}.safetensors (ema.safetensors, too, where weights are averaged) and
 * manifest.json, which is the commit record. Built under a temporary name, fsynced, renamed; at any failure or kill the
 * last good one stays. They know neither mode nor number of devices. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/rule.h"
#include "engine/data/preprocessing.h"
#include "engine/model/model.h"

/* ---- safetensors ---- */
struct optim_ops;
struct st_tensor { /* one tensor of a file; name borrowed */
    const char *name;
    const char *dtype; /* "F32" "F64" "F16" "BF16" "I64" "I32" "I16" "I8" "U64" "U8" "BOOL" */
    int ndim;
    int64_t dim[SHAPE_MAX];
    void *data; /* to write from */
    size_t bytes;
    size_t offset; /* reading: from the start of the data */
    uint32_t crc;  /* reading: as the file's metadata says; has_crc */
    bool has_crc;
};
struct st_file {
    int fd;
    char *path;
    size_t data_start, data_bytes;
    int count;
    struct st_tensor *tensors; /* in order of offset */
    const struct json_value *metadata;
    struct pool *pool;
};
/* Writes a file (created exclusively), data 64-byte aligned, crc32c of each tensor in __metadata__ after the
 * pairs of 'metadata', which a NULL name ends (NULL: there are none); fsyncs and closes. */
MUST_CHECK enum error st_write(const char *path, const struct st_tensor *tensors, int count,
                               const char *const (*metadata)[2], uint32_t *file_crc, int64_t *file_bytes);
/* Opens and checks the header completely (sizes, overlaps, overflow, duplicates). Data is not read
 * yet. */
MUST_CHECK enum error st_open(const char *path, struct st_file *out);
/* "2x3"; "" of one number. */
char *st_shape_text(const struct st_tensor *t, char out[128]);
const struct st_tensor *st_find(const struct st_file *f, const char *name);
/* Reads one tensor's bytes and checks its crc. */
MUST_CHECK enum error st_read(const struct st_file *f, const struct st_tensor *t, void *data);
void st_close(struct st_file *f);

/* ---- checkpoints ---- */
/* A run's id, 16 hexadecimal digits: drawn anew at a fresh start, kept by whatever goes on with the
 * run. A checkpoint names its run, so that none is ever taken for another's. */
enum { RUN_ID_TEXT = 17 };
/* Where checkpoints of a run are asked for, NULL means the one that the folder is recorded as (run.json;
 * if it has saved none: those that name no run), and any where none is recorded; RUN_ANY any. */
#define RUN_ANY "*"
struct patience { /* train.patience */
    double best;  /* of its metric */
    double at;    /* the step of that; 0: there is none yet */
    double waits; /* evaluations since */
    double seen;  /* the step of the last evaluation that was counted */
};
struct target {   /* train.until */
    double value; /* of its metric, when it was last known */
    double at;    /* the step of that; 0: there is none yet */
};
struct checkpoint_counters { /* where the run is: plain numbers, the sampler's position among them
                              */
    int64_t step, epoch, step_in_epoch;
    double best;      /* of checkpoint.best's metric; NaN: none */
    double best_loss; /* of the validation that it is from; NaN: an older checkpoint does not say */
    struct patience patience;
    struct target target;
    struct sha256 losses;
    float loss;         /* of the last step; NaN: there was none, or an older checkpoint does not say */
    double seconds;     /* that its steps took, so far */
    double loss_scale;  /* fp16; else 0 */
    int64_t good_steps; /* since it changed */
    int64_t skipped;    /* steps, so far */
    int devices;        /* of a checkpoint that was loaded: with how many it was saved; else 0 */
    bool rescued;       /* saved after a loss: what was due after the step may not have been done */
    char tuned[512]; /* what its first steps have chosen by their time, and where: "key=value\n" lines; "": nothing */
};
/* Finds the file of the network's weights in a step's folder, into the pool. That is the averaged one where the
 * manifest names one, but for those who ask for the weights themselves, 'raw'. ERR_DATA: it is not there. */
MUST_CHECK enum error checkpoint_weights(const char *step, bool raw, struct pool *pool, const char **out);
/* Which samples were held out when the step folder was saved, as data.split says it. false: its weights cannot be read
 * from here. */
bool checkpoint_split(const char *path, struct pool *pool, int64_t *split);
struct checkpoint_view { /* what is saved: borrowed pointers into the arenas, or where to load to */
    const struct model *model;
    struct device *device; /* in whose memory they may lie; NULL: the host's */
    float *values, *buffers;
    float *average; /* of the values (ema); NULL: there is none */
    float *outer;   /* momentum of the outer step (ddp.sync.outer); NULL: there is none */
    int nslots;
    const char *const *slot_names;
    const struct optim_ops *optim; /* whose state it is; NULL: it is as the tensors are */
    float *slots[RULE_SLOTS];      /* arenas of the optimizer state; NULL: what saver_state gave holds it */
    struct checkpoint_counters *counters;
    const char *patience; /* its metric, whose counters may be missing in a checkpoint; NULL: none */
    const char *target;   /* likewise */
    bool scaled;          /* the counters of the loss's scale belong to it */
    const char *identity; /* text of what must be equal to resume: model, data, batch, seed, ...
                             "key=value\n" lines */
    const char *data;     /* likewise of what the data hold; NULL: not compared, not saved */
    bool any_data;        /* if they are others, that is a warning */
    const char *run_id;   /* of the run that saves; NULL: it has none */
    const char *mode;
    int devices;
    /* The data that the network is trained on, saved as preprocessing; NULL: nothing is saved. */
    const struct dataset *set;
    struct normalization *norm; /* of these data; a load sets it to that of the checkpoint */
};
/* Saves in a thread of its own, beside training: 'save' copies what it needs into memory taken at
 * 'open' and returns; a second save waits for the first. A failed save is logged at once and leaves
 * no files; training goes on, but save reports the last failure when three in a row have
 * failed, and wait when the last one has (and that failure is then forgotten). keep: how many
 * complete ones to leave (0: all); the one just saved, the newest 'best' and those of another run
 * are never deleted. What v points to is borrowed. */
struct saver;
MUST_CHECK enum error saver_open(const char *folder /* RUN/ckpt */, int keep, const struct checkpoint_view *v,
                                 struct saver **out);
/* Arenas that the next save writes the optimizer state from, to be filled before it where the view
 * has none. Waits for the save before. */
void saver_state(struct saver *s, float *slots[RULE_SLOTS]);
MUST_CHECK enum error saver_save(struct saver *s, bool best);
MUST_CHECK enum error saver_wait(struct saver *s); /* until the last one is on disk */
void saver_close(struct saver *s);                 /* waits, too; NULL is fine */

/* Loads the checkpoint at path: a step folder; a ckpt folder or a run folder (the newest valid one
 * of that run, a broken one is skipped with a warning); or a .safetensors file, of which the model alone
 * is taken: first weights. Nothing of v is touched unless all of it is valid and fits. ERR_CONFIG:
 * valid, but of another model, another experiment (v->identity, NULL: not compared) or other data.
 * Data of another mean and deviation are warned of, and the checkpoint's are kept. */
MUST_CHECK enum error checkpoint_load(const char *path, struct checkpoint_view *v);
/* The newest valid checkpoint of a run under a ckpt or run folder, into the pool;
 * ERR_INPUT when there is none. */
MUST_CHECK enum error checkpoint_find(const char *folder, const char *run_id, struct pool *pool, char **path);
/* Which step a step's folder is of. ERR_CONFIG: it is of another experiment; identity, any_data: as in the view. */
MUST_CHECK enum error checkpoint_step(const char *path, const char *identity, bool any_data, struct pool *pool,
                                      int64_t *step);
/* What the data held when the weights at path (a file of a step's folder) were saved, as data_identity says it, into the
 * pool; "": that is not known. */
const char *checkpoint_data(const char *path, struct pool *pool);
/* Whose checkpoint a step's folder is, into the pool: "" where that is not said. NULL: it is none.
 */
const char *checkpoint_run_id(const char *path, struct pool *pool);
/* The newest step of a run under a ckpt or run folder that has a manifest, whether or
 * not the rest is valid; NULL: there is none. */
const char *checkpoint_newest_step(const char *folder, const char *run_id, struct pool *pool);
/* The newest step of a run there that was saved as a checkpoint was due, and not after a loss; -1: none. */
int64_t checkpoint_newest_due(const char *folder, const char *run_id, struct pool *pool);
/* The newest valid one of a run that was the best when it was saved; where there is
 * none, the newest. */
MUST_CHECK enum error checkpoint_find_best(const char *folder, const char *run_id, struct pool *pool, char **path);
/* Which checkpoint of a run was the best when it was saved (checkpoint.best), by what the manifests say; run_id NULL: the run
 * that the folder is recorded as. path NULL, step -1: none. */
struct checkpoint_place {
    const char *path;
    int64_t step;
};
MUST_CHECK enum error checkpoint_best(const char *run_dir, const char *run_id, struct pool *pool,
                                      struct checkpoint_place *out);
/* What the network in a .safetensors file of ours was trained on, into the pool; NULL: the file does
 * not tell, as others' and old ones. ERR_DATA: the file is damaged, or what it tells makes no sense. */
MUST_CHECK enum error checkpoint_preprocessing(const char *path, struct pool *pool, struct preprocessing **out);
/* Deletes temporary folders that a killed run left. */
void checkpoint_sweep(const char *folder);
/* Whether a process is writing a checkpoint there; whether one has a saver open that may do so. */
bool checkpoint_is_written(const char *folder);
bool checkpoint_has_saver(const char *folder);
/* sha256 over all weights (by name order of the model's params) as hex; all NaNs count as the same. */
void checkpoint_weights_hash(const struct model *m, const float *values, char out[SHA256_TEXT]);
