/* Quantiles: the one definition that all reports use. */
#pragma once
#include <stdint.h>

/* For qsort: doubles, the smallest first. */
int numbers_ascend(const void *a, const void *b);
/* Sorts v. n > 0; q from 0 to 1: between two neighbours, by the distance from them. */
double quantile_of(double *v, int64_t n, double q);
