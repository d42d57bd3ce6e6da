/* The log that a file store keeps: one record a change, in one file. */
#pragma once
#include "transport/store/table.h"

#include <sys/types.h>

struct log_header { /* at the file's beginning; a multiple of 8 bytes, without holes */
    char magic[8];
    uint64_t life; /* a random number: of this beginning of the file */
    char run[STORE_KEY_MAX + 1];
    char who[128]; /* who began it */
    uint32_t zero, crc;
};
enum { LOG_START = sizeof(struct log_header) };

enum log_state { LOG_EMPTY, LOG_WHOLE };
/* LOG_EMPTY: nothing, or as much of a header as was written when its writer was killed. ERR_DATA:
 * it is no log, or damaged. */
MUST_CHECK enum error log_read_header(int fd, const char *path, struct log_header *h, enum log_state *state);
/* Empties the file and writes the header. */
MUST_CHECK enum error log_begin(int fd, const char *path, const char *run, const char *who, struct log_header *h);
/* Applies the records from *end to the file's end, and moves *end there. An incomplete last record is cut off: its
 * writer was killed before success was reported to it. */
MUST_CHECK enum error log_replay(int fd, const char *path, struct store_table *t, off_t *end);
/* Appends what the key holds now (at NULL: nothing), or leaves the file as it was. */
MUST_CHECK enum error log_append(int fd, const char *path, const char *key, struct bytes value, off_t *end);
