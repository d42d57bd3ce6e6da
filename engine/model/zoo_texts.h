/* The texts of configs/models/, written into a C file by cmake/embed.cmake when the engine is built. */
#pragma once
#include "engine/model/model.h"

extern const struct zoo_model zoo_texts[];
extern const int zoo_texts_count;
