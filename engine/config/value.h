/* Reads one scalar as the type of its field; the reader and the help share these functions. */
#pragma once
#include "engine/config/schema.h"

enum value_fault { VALUE_RIGHT, VALUE_WRONG, VALUE_ABOVE /* of the right form, over max */ };
/* Reads text as one value of the field's type (of one item for lists) into out; a string is
 * borrowed. */
enum value_fault value_read(const struct config_field *f, const char *text, void *out);
/* "5ep" of "5 epochs", "5e"; NULL: the text is no such length, or the field takes none. */
const char *value_length(const struct config_field *f, const char *text, struct pool *pool);
size_t value_size(enum config_type type); /* of one value, of one item for lists; 0: no scalar type */
bool value_is_path(const struct config_field *f,
                   const char *text); /* what such a field holds, and not one of its words */
bool value_is_list(enum config_type type);
/* "an integer >= 1", "true or false", "one of a, b, c"; NULL: no memory. */
const char *value_type(const struct config_field *f, struct pool *pool);
/* The words of "a|b|c": how many, into names, copied to the pool. -1: no memory. */
enum { WORDS_MAX = 64 };
int value_words(const char *choices, struct pool *pool, const char *names[WORDS_MAX]);
/* "a, b, c" */
const char *value_join(const char *const *names, int n, struct pool *pool);

/* The field that holds a variant in this section's own map, or NULL. */
const struct config_field *section_inline(const struct config_section *s);
/* The key of the section's map that a bare scalar sets, or NULL. */
const char *section_shorthand(const struct config_section *s);
