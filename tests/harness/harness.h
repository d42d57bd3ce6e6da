/* What every test program shares: CMocka behind its includes, scratch folders, checks on enum
 * error. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/error.h"

#define assert_ok(expr)                                                                                                \
    do {                                                                                                               \
        enum error check_ = (expr);                                                                                    \
        if (check_ != ERR_NONE) fail_msg("%s: %s", #expr, error_message());                                            \
    } while (0)
/* As CMocka's assert_in_range, whose name differs by version. */
#define assert_between(value, least, most)                                                                             \
    do {                                                                                                               \
        long long value_ = (long long)(value), least_ = (long long)(least), most_ = (long long)(most);                 \
        if (value_ < least_ || value_ > most_)                                                                         \
            fail_msg("%s is %lld, and not from %lld to %lld", #value, value_, least_, most_);                          \
    } while (0)
#define assert_fails(expected, expr)                                                                                   \
    do {                                                                                                               \
        enum error check_ = (expr);                                                                                    \
        if (check_ != (expected))                                                                                      \
            fail_msg("%s: expected '%s', got '%s': %s", #expr, error_text(expected), error_text(check_),               \
                     error_message());                                                                                 \
    } while (0)

/* A folder of this test's own, made empty now and removed at exit, or by a later test if this one is killed. The text is static. */
const char *scratch_folder(void);
/* "FOLDER/name", in a rotating static buffer. */
const char *scratch_path(const char *name);
/* A file that holds this and nothing else. */
void save_text(const char *path, const char *text);
/* How many paths "in/pattern" matches, as in a shell. */
int folder_count(const char *in, const char *pattern);
/* Counts allocations (malloc, calloc, realloc, aligned_alloc, posix_memalign) of the whole process
 * between the calls. */
void count_allocations_begin(void);
long count_allocations_end(void);
