/* The program. It is the library's first user: all of it is in cli/library/program.c. */
#include "cli/line/cli.h"

int main(int argc, char **argv) {
    return engine_program(argc, argv);
}
