/* A number, or a text, of an experiment, by name: SIDE.METRIC or SIDE[AXIS=VALUE, ...].METRIC.
 *
 * SIDE is a value of the first axis, or A, B, C... by its position. Brackets fix other axes, so that cells of several
 * places can be held against each other; an axis is named by its key or by the last part of it. METRIC is what
 * 'engine compare' measures, or speedup, efficiency, spread, predicted, or one of the texts weights and losses.
 *
 * SIDE.METRIC.ANSWER is what the comparison of a side with A says of one of the experiment's metrics: the text verdict,
 * or effect, low and high (the interval), p (Holm's) and power, numbers on the metric's own scale: 1.2 times as good, or
 * better by 0.012. SIDE.ANSWER is of the first metric. */
#pragma once
#include "lab/experiment/check.h"
#include "lab/experiment/experiment.h"

struct quantity {
    enum quantity_kind {
        QUANTITY_MEASURE,
        QUANTITY_SPEEDUP,
        QUANTITY_EFFICIENCY,
        QUANTITY_SPREAD,
        QUANTITY_PREDICTED, /* milliseconds of a step; where compare_predict has been called */
        QUANTITY_EFFECT,    /* this and the next four: of an answer */
        QUANTITY_LOW,
        QUANTITY_HIGH,
        QUANTITY_P,
        QUANTITY_POWER,
        QUANTITY_WEIGHTS, /* this and the next two: texts */
        QUANTITY_LOSSES,
        QUANTITY_VERDICT /* of an answer, too */
    } kind;
    struct measure measure;
    int asked;               /* of an answer: which of the experiment's measures it is about */
    int at[EXPERIMENT_AXES]; /* -1: as at the place that is looked at; the first is the side */
};
/* Reads SIDE.METRIC, with [AXIS=VALUE] after the side to fix other axes; false: 'wrong' says why. */
bool quantity_read(const struct experiment *x, const char *text, struct quantity *out, char wrong[CHECK_WRONG]);
bool quantity_timed(const struct experiment *x, const struct quantity *q); /* it depends on how fast the machine is */
/* The quantity's cell at the place of another cell (-1: at none, so all its axes are to be fixed); -1: there is none. */
int quantity_cell(const struct experiment *x, const struct quantity *q, int place);

/* Finds the axes that the conditions of a check name; false: wrong[] names the missing one. */
bool quantity_conditions(const struct experiment *x, const struct check *check, int axis[CHECK_CONDITIONS],
                         char wrong[CHECK_WRONG]);
/* Whether the cell is one that q names, at a place that the conditions leave. */
bool quantity_stands(const struct experiment *x, const struct quantity *q, const struct check *check,
                     const int axis[CHECK_CONDITIONS], int cell);
