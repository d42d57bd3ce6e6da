/* Types of options that the schema does not have: lists of numbers, a port. */
#pragma once
#include "engine/base/error.h"
#include "lab/predict/cost.h"
#include <stdint.h>

enum { LIST_MOST = 32 };
/* The words between commas, one after another; false: there is none, or it is too long. */
bool list_word(const char **list, char word[64]);
/* "2,4,8", "1..64": the ends and the powers of two between them; bytes: "64KB,25MB". ERR_USAGE: it is none, or a
 * number is not from 1 to 'most'. */
enum error list_numbers(const char *list, bool bytes, int64_t most, int64_t out[LIST_MOST], int *count);
/* RATE or RATE,LATENCY; "unlimited" is a rate. */
bool list_wire(const char *value, struct wire *out);
/* "10Gbit, 50us", as people read a port. */
const char *list_wire_text(const struct wire *w, char out[64]);
