/* A text of the source tree that the program holds: see engine_embed in CMakeLists.txt. */
#pragma once

struct embedded {
    const char *name, *text;
};
