/* A condition on what was measured, as text: gates of experiments and claims of labs are written in it.
 *
 *   CHECK:     TERM OP TERM [@ CONDITION [, CONDITION]...]
 *   TERM:      NUMBER, or [NUMBER *] QUANTITY [+ NUMBER | - NUMBER]; a number may be negative where it is the first
 *   CONDITION: AXIS OP VALUE            OP: > >= < <= == !=
 *
 * What a QUANTITY is, its reader knows: this takes the text apart. */
#pragma once
#include "lab/numbers/statistics.h"

enum relation { IS_GE, IS_LE, IS_EQ, IS_NE, IS_GT, IS_LT, RELATIONS };
enum { CHECK_CONDITIONS = 8, CHECK_TEXT = 200, CHECK_WRONG = 256 };
struct check_term {
    double factor, plus;
    char quantity[CHECK_TEXT]; /* "": the factor alone */
};
struct check_condition {
    char axis[CHECK_TEXT];
    enum relation op;
    char value[CHECK_TEXT];
};
struct check {
    struct check_term term[2];
    enum relation op;
    int nconditions;
    struct check_condition condition[CHECK_CONDITIONS];
};
/* false: wrong[] says what is not understood. */
bool check_read(const char *text, struct check *out, char wrong[CHECK_WRONG]);

/* The order of words: "cpu:4" counts 4, "1Gbit" is a rate, "off" is more than any; others are only equal or not. */
bool relation_of_words(const char *a, enum relation op, const char *b);

/* The value of a term: a number, or the texts of several runs. */
struct check_value {
    double number; /* NaN: not measured */
    int ntexts;    /* 0: it is a number */
    const char *text[STATISTICS_RUNS];
    /* 1 + the seed that a text belongs to, and then it is held against those of this seed alone; 0: against any. */
    int64_t of[STATISTICS_RUNS];
};
/* 1, 0; -1: it was not measured, or they are not to be compared. Texts: == is all of one side like those of the other,
 * != none like any. */
int check_holds(const struct check_value *a, enum relation op, const struct check_value *b);
