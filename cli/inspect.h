/* What engine inspect has in a file of its own. */
#pragma once
#include "engine/data/preprocessing.h"

/* Prints what a network was trained on: sizes, mean and deviation, classes, columns, vocabulary. */
void inspect_preprocessing(const struct preprocessing *p);
