/* Small sums in a zoo file: what stands in $(...) and after 'if'.
 *
 *   numbers, $names, words; ( ) ^ * / % + - == != < <= > >= and or; sqrt(x)
 *
 * from the tightest to the loosest; ^ is a power. Numbers are doubles; a comparison gives 1 or 0.
 * Words can only be compared by == and !=. */
#pragma once
#include "engine/base/error.h"

enum { EXPRESSION_TEXT = 256 }; /* of a result, and of a message */
struct expression_names {
    /* The text that $name (n characters at name) stands for; NULL: there is none. */
    const char *(*find)(void *user, const char *name, size_t n);
    void *user;
};
/* Writes the value as text: a whole number without a point, others with 9 digits, or the word. When
 * false, out says what is wrong instead; *missing is set where a name was not found, which the
 * finder may have reported already. */
bool expression_text(const char *text, const struct expression_names *names, char out[EXPRESSION_TEXT], bool *missing);
/* Whether the value is a number other than 0, in *truth; a word is an error. */
bool expression_truth(const char *text, const struct expression_names *names, bool *truth,
                      char message[EXPRESSION_TEXT], bool *missing);
/* Of the letters, digits and '_' at the beginning. */
size_t word_length(const char *s);
