/* The files of examples/labs/, written into a C file by cmake/embed.cmake when the engine is built. */
#pragma once
#include "lab/lesson.h"

extern const struct lesson_file lesson_texts[];
extern const int lesson_texts_count;
