/* Reads untrusted data files: gzip or plain, forward only; sizes in a header are checked before memory is allocated. */
#pragma once
#include "engine/base/memory.h"

struct input {
    void *stream;
    const char *path; /* borrowed */
    int64_t size;     /* of the file as it lies on disk */
    int64_t at;       /* bytes given so far */
    bool packed;      /* gzip */
};
/* Opens a regular file for reading and gives its size. ERR_INPUT: missing, not readable, or no regular file; *fd is -1. */
MUST_CHECK enum error input_open_file(const char *path, int *fd, int64_t *size);
/* The same for a stream. */
MUST_CHECK enum error input_open(const char *path, struct input *in);
void input_close(struct input *in);
/* Exactly n bytes; ERR_DATA when the file ends before. buffer may be NULL: they are skipped. */
MUST_CHECK enum error input_read(struct input *in, void *buffer, int64_t n);
/* Reads at most n bytes; *got is less only at the end. */
MUST_CHECK enum error input_read_some(struct input *in, void *buffer, int64_t n, int64_t *got);
/* Whether n more bytes, and no other, can follow: exact for plain files; for gzip no more than it
 * can expand to. */
MUST_CHECK enum error input_promise(const struct input *in, int64_t n);
/* Checks that the file ends here; for gzip also that its checksum is right. */
MUST_CHECK enum error input_end(struct input *in);
