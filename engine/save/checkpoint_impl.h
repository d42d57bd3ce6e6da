/* What the files of the checkpoints share: the names on disk, the manifest, and the snapshot, a
 * private copy of all that a checkpoint holds (what the saver writes from, what a load fills before
 * it touches anything). */
#pragma once
#include "engine/save/checkpoint.h"

/* The last is there only where weights are averaged: a network as the first, with the same buffers. */
enum checkpoint_file { FILE_MODEL, FILE_OPTIM, FILE_STATE, FILE_AVERAGE, CHECKPOINT_FILES };
extern const char *const checkpoint_file_names[CHECKPOINT_FILES];

/* ---- the manifest: which files make the checkpoint, and their sums; its own is its last entry
 * ---- */
struct manifest {
    int64_t step;
    const char *mode, *identity;
    const char *run_id, *data; /* "": not said */
    const char *preprocessing; /* to write: a value in JSON; NULL: none */
    int devices;
    bool best, rescued;
    double loss;       /* of the step; NaN: not said */
    const char *tuned; /* as of the counters */
    struct {
        int64_t bytes; /* 0: it is not there */
        uint32_t crc;
    } file[CHECKPOINT_FILES];
};
MUST_CHECK enum error manifest_write(const char *folder, const struct manifest *m);
/* Texts lie in the pool. ERR_INPUT: there is none; ERR_DATA: it is damaged, or of a format that is
 * not ours. */
MUST_CHECK enum error manifest_read(const char *folder, struct pool *pool, struct manifest *out);

/* ---- the identity (identity.c) ---- */

/* ERR_CONFIG: of the checkpoint at path another value was saved than ours, of a key; ours NULL: the caller does not mind.
 * The section 'data', which may be another on purpose, is compared by itself, and so is what the data hold. */
MUST_CHECK enum error identity_check(const char *path, const char *saved, const char *ours);
MUST_CHECK enum error identity_check_section(const char *path, const char *saved, const char *ours);
MUST_CHECK enum error identity_check_contents(const char *path, const char *saved, const char *ours);

/* ---- the folders ---- */
struct step_list {
    int64_t *step; /* newest first */
    int count;
};
/* The steps of which there is a folder, in the pool. */
MUST_CHECK enum error step_list_read(const char *folder, struct pool *pool, struct step_list *out);
/* "FOLDER/step-000000120" */
char *step_path(const char *folder, int64_t step, struct pool *pool);
/* Temporary folders begin with this; their owner holds a lock on them. */
#define TEMPORARY_PREFIX ".tmp-"

/* Tensors that a run may have and its checkpoint not, or the other way round: of FILE_OPTIM, then of FILE_STATE. */
#define OUTER_PREFIX "outer/"
#define BEST_LOSS "best_loss"
#define PATIENCE_PREFIX "patience."
#define TARGET_PREFIX "until."

/* ---- the snapshot ---- */
struct snapshot;
MUST_CHECK enum error snapshot_create(const struct checkpoint_view *v, struct snapshot **out);
void snapshot_free(struct snapshot *shot);
/* view -> snapshot */
MUST_CHECK enum error snapshot_take(struct snapshot *shot, const struct checkpoint_view *v);
void snapshot_slots(const struct snapshot *shot, float *slots[RULE_SLOTS]);
/* snapshot -> view; or the model alone */
MUST_CHECK enum error snapshot_give(const struct snapshot *shot, const struct checkpoint_view *v, bool all);
const struct st_tensor *snapshot_tensors(const struct snapshot *shot, enum checkpoint_file file, int *count);
const struct checkpoint_counters *snapshot_counters(const struct snapshot *shot);
