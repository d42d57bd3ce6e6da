/* Small text work: numbers with units, nearest names, a growing string is struct json's or
 * pool_printf's. */
#pragma once
#include "engine/base/error.h"
#include <locale.h>
#include <stddef.h>
#include <stdint.h>

/* "64KB" "25MB" "1GiB" "512" -> bytes; K, M, G and Ki, Mi, Gi, with or without B, are all powers of
 * 1024, as PyTorch counts buckets. false: not of that form or too large. */
bool text_bytes(const char *s, int64_t *out);
/* "10s" "250ms" "50us" "2m" or "2min" "1h" -> seconds. A bare number is seconds. */
bool text_seconds(const char *s, double *out);
/* "1Gbit" "100Mbit" "250MB", with or without "/s" -> bytes a second. As networks count: K, M, G are
 * powers of 1000. A bare number is bytes. */
bool text_rate(const char *s, double *out);
bool text_int(const char *s, int64_t *out); /* whole text, decimal, no leading +, no 010 */
bool text_real(const char *s, double *out); /* whole text, finite */
/* From here on this thread reads and writes numbers with a point, whatever the locale of the program that the engine is a
 * part of. Gives the locale that the thread had, for uselocale(). */
locale_t text_plain_numbers(void);

/* Whether s ends in 'end' with something before it: a file's name in its extension. */
bool text_ends(const char *s, const char *end);

/* The nearest of names[0..n): the only one that begins with the name, if that has three letters or more; else the one with
 * the fewest edits (insert, delete, replace, swap of neighbours), at most a third of the name's length; or NULL. Upper and
 * lower case are the same. */
const char *text_nearest(const char *name, const char *const *names, int n);

/* Bytes of the UTF-8 character at p (n > 0 bytes are there), 0 when there is none: overlong forms,
 * surrogates and what lies beyond U+10FFFF are none. */
size_t text_utf8(const char *text, size_t n);

/* How many columns of a terminal a text takes, where each character takes one. */
int text_columns(const char *s);

/* Puts '?' for what could steer a terminal, in place: control characters but those of 'spared', and
 * bytes that are no UTF-8. Gives the text. */
char *text_defuse(char *text, const char *spared);

/* Puts more at the end of a text with room for 'size' bytes, as far as it fits. */
void text_append(char *text, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* "2, 5", "0 to 62, 64": ascending numbers, four or more in a row as a range. What does not fit in the n bytes of out
 * is ", ...". */
void text_of_numbers(const int *number, int count, char *out, size_t n);

/* Numbers for users: "4.3 MB" (of 1024 KB); "672,778"; "12 us", "250 ms", "1.2 s", from a minute on "0:01:07"; "1.25
 * Gbit/s", from bytes a second. out has 32 bytes. */
char *text_of_bytes(double bytes, char out[32]);
char *text_of_count(int64_t n, char out[32]);
char *text_of_seconds(double s, char out[32]);
char *text_of_rate(double bytes_per_s, char out[32]);
