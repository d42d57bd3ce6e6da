/* The report of a command about its run, collected from lines and files of several forms: numbers by step and name. */
#pragma once
#include "engine/base/memory.h"

/* The numbers, under the names that each goes by: lower case, words joined by '_' ("val/Accuracy" is val_accuracy). */
#define TOLD_FIELDS(X)                                                                                                 \
    X(EPOCH, "epoch")                                                                                                  \
    X(LOSS, "loss train_loss loss_train training_loss")                                                                \
    X(ACCURACY, "accuracy acc train_accuracy train_acc accuracy_train")                                                \
    X(LR, "lr learning_rate")                                                                                          \
    X(GRAD_NORM, "grad_norm")                                                                                          \
    X(SAMPLES, "samples")                                                                                              \
    X(MS, "ms step_ms")                                                                                                \
    X(TIME, "time")                                                                                                    \
    X(LOAD, "load_ms phase_ms_load")                                                                                   \
    X(FORWARD, "forward_ms phase_ms_forward")                                                                          \
    X(BACKWARD, "backward_ms phase_ms_backward")                                                                       \
    X(COMM, "comm_ms phase_ms_comm")                                                                                   \
    X(UPDATE, "update_ms phase_ms_update")                                                                             \
    X(VAL_LOSS, "val_loss loss_val valid_loss validation_loss")                                                        \
    X(VAL_ACCURACY, "val_accuracy val_acc accuracy_val valid_accuracy validation_accuracy")                            \
    X(VAL_TOP5, "val_top5")                                                                                            \
    X(VAL_PERPLEXITY, "val_perplexity")                                                                                \
    X(VAL_BALANCED_ACCURACY, "val_balanced_accuracy")                                                                  \
    X(VAL_RMSE, "val_rmse")                                                                                            \
    X(VAL_MAE, "val_mae")                                                                                              \
    X(VAL_R2, "val_r2")                                                                                                \
    X(VAL_BITS_PER_BYTE, "val_bits_per_byte")                                                                          \
    X(VAL_SAMPLES, "val_samples")
enum told_field {
#define X(name, words) TOLD_##name,
    TOLD_FIELDS(X)
#undef X
        TOLD_COUNT
};
struct told_row {
    int64_t step;
    int64_t order;         /* its place in the order of reports */
    double of[TOLD_COUNT]; /* NaN: not reported */
};
struct told {
    struct told_row *row;
    size_t n, room;
    double bytes;     /* that the busiest rank has sent; NaN */
    char weights[65]; /* sha256; "" */
    int64_t not_json; /* the first line that begins as JSON and is none; 0 */
    int64_t lines;    /* objects that tell of no step */
};
void told_init(struct told *t);
void told_fini(struct told *t);
/* -1: a name that says nothing to us. */
int told_field_of(const char *name, size_t n);
/* A new row without values. ERR_DATA: no such step, or too many rows. */
MUST_CHECK enum error told_add(struct told *t, double step, struct told_row **out);
/* A loss that is NaN counts as infinite, because it was reported and is not small. Other numbers that are NaN count
 * as not reported. */
void told_put(struct told_row *r, int field, double value);
/* Puts rows in order and makes one of those of a step. ERR_DATA: a number of a step is reported twice. Steps that count
 * from 0 count from 1 afterwards. */
MUST_CHECK enum error told_settle(struct told *t);
/* Whether it is a step, and no validation alone; whether it has one. */
bool told_is_step(const struct told_row *r);
bool told_is_val(const struct told_row *r);

/* The lines of JSON of a file; 'all': any other line is an error, and a first line that is no object makes it CSV. */
MUST_CHECK enum error told_lines(const char *path, bool all, struct told *t);
/* A table whose first line names its columns; one without a column 'step' is left alone. */
MUST_CHECK enum error told_csv(const char *path, struct told *t);
