/* The output of one rank: a pipe, whose contents go to a file unchanged and to the log line by line. */
#pragma once
#include "transport/launch/launch.h"

enum { OUTPUT_LINE = 4096, OUTPUT_TAIL = 2047 };
/* The newest lines with errors and hints of all ranks. */
enum { TOLD_LINES = 8 };
struct told_lines {
    int count, rank[TOLD_LINES];
    char line[TOLD_LINES][OUTPUT_LINE];
};
struct rank_output {
    int rank;
    struct told_lines *told; /* lines in it are not logged again for another rank; NULL: all lines are logged */
    int pipe;                /* the end that we read; -1 when it has ended */
    int file;                /* -1: none */
    FILE *log;               /* NULL: none */
    size_t prefix;           /* of line: "[rank 2] " */
    size_t length;           /* of line, prefix included */
    size_t tail_length;
    char tail[OUTPUT_TAIL];     /* the last of all it wrote */
    char line[OUTPUT_LINE + 1]; /* the line that is not complete yet, room for its end */
};
/* Opens the pipe and the file. *rank_end is the end for the rank: the caller's to close. */
MUST_CHECK enum error output_open(struct rank_output *o, int rank, const char *folder, FILE *log, int *rank_end);
/* Takes what is there, without waiting; a bounded amount, so that one rank cannot keep all
 * attention. false: no more now. */
bool output_read(struct rank_output *o);
/* The last lines, as text that a terminal and a C string bear. */
void output_last_lines(const struct rank_output *o, char out[OUTPUT_TAIL + 1]);
/* Prints what is left of a line. Fine on a zeroed struct. */
void output_close(struct rank_output *o);
