/* One error type, one message. Every function that can fail returns enum error; the first point of
 * failure records what happened (with values) and, where there is one, a hint; callers pass it up.
 * assert() is for the engine's own bugs only, and only main() exits. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/*  name      what it means               exit code of the process */
#define ERRORS(X)                                                                                                      \
    X(NONE, "success", 0)                                                                                              \
    X(RESULT, "the result is not acceptable", 1)                                                                       \
    X(USAGE, "wrong usage", 64)                                                                                        \
    X(DATA, "bad data", 65)                                                                                            \
    X(INPUT, "missing input", 66)                                                                                      \
    X(DEVICE, "device or feature unavailable", 69)                                                                     \
    X(BUG, "internal error", 70)                                                                                       \
    X(MEMORY, "out of memory", 71)                                                                                     \
    X(CREATE, "cannot create", 73)                                                                                     \
    X(IO, "input or output failed", 74)                                                                                \
    X(PEER, "a rank was lost", 75)                                                                                     \
    X(TIMEOUT, "timed out", 75)                                                                                        \
    X(MISMATCH, "ranks disagree", 70)                                                                                  \
    X(CONFIG, "bad configuration", 78)

enum error {
#define X(name, text, code) ERR_##name,
    ERRORS(X)
#undef X
};

#define MUST_CHECK __attribute__((warn_unused_result))

const char *error_text(enum error err);
int error_exit_code(enum error err);

/* This thread's last failure and its hint ("" when there is none). Valid until the thread's next
 * failure. */
const char *error_message(void);
const char *error_hint(void);
/* Both as FAIL takes them, the hint after a "\n" where there is one; cut off at the size. Returns out. */
enum { ERROR_WORDS = 2048 };
char *error_words(char *out, size_t size);

/* Records a failure of this thread and returns err. The message is the text up to an optional
 * "\n", the hint what follows it: FAIL(ERR_INPUT, "no file '%s'\ncheck data.train", path). */
enum error error_set(enum error err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts words before the message of the last failure: "data.train: " + message. Returns err. */
enum error error_prefix(enum error err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define FAIL(err, ...) error_set((err), __VA_ARGS__)
#define TRY(expr)                                                                                                      \
    do {                                                                                                               \
        enum error try_err_ = (expr);                                                                                  \
        if (try_err_ != ERR_NONE) return try_err_;                                                                     \
    } while (0)
/* For what gives NULL where there is no memory, with the error recorded. */
#define TRY_MEMORY(p)                                                                                                  \
    do {                                                                                                               \
        if (!(p)) return ERR_MEMORY;                                                                                   \
    } while (0)
/* For functions that own something: err is the caller's variable, label its clean-up. */
#define TRY_GOTO(err, expr, label)                                                                                     \
    do {                                                                                                               \
        if (((err) = (expr)) != ERR_NONE) goto label;                                                                  \
    } while (0)
