/* A strict reader of TensorBoard's event files: of the messages only what the engine writes is
 * known, and anything else is wrong. It shares no code with the writer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVENT_VALUES = 32, EVENT_WORD = 64 };
struct event {
    double wall;
    int64_t step;
    char version[EVENT_WORD]; /* "": none */
    bool start;               /* a session begins: what earlier files say from this step on is void */
    int count;
    struct event_value {
        char tag[EVENT_WORD];
        float number;
        const char *text; /* not a number, but this, ntext bytes in the data */
        size_t ntext;
    } value[EVENT_VALUES];
};
/* The event at *at, which moves behind it. NULL: read, or nothing is left (*at == n before and
 * after); else what is wrong with the record, and *at stays. */
const char *event_read(const uint8_t *data, size_t n, size_t *at, struct event *out);
/* The value of that tag, or NULL. */
const struct event_value *event_find(const struct event *e, const char *tag);
