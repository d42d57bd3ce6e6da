#include "engine/base/error.h"

#include "engine/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[ERROR_WORDS];
static _Thread_local char *hint;

const char *error_text(enum error err) {
    static const char *const texts[] = {
#define X(name, text, code) [ERR_##name] = text,
        ERRORS(X)
#undef X
    };
    return texts[err];
}

int error_exit_code(enum error err) {
    static const int codes[] = {
#define X(name, text, code) [ERR_##name] = code,
        ERRORS(X)
#undef X
    };
    return codes[err];
}

const char *error_message(void) {
    return message;
}

const char *error_hint(void) {
    return hint ? hint : "";
}

char *error_words(char *out, size_t size) {
    snprintf(out, size, "%s%s%s", message, *error_hint() ? "\n" : "", error_hint());
    return out;
}

/* A message may quote a file's name, or what a file holds: none of it may steer the terminal. */
static void split_hint(void) {
    hint = strchr(message, '\n');
    if (hint) *hint++ = '\0';
    text_defuse(message, "");
    if (hint) text_defuse(hint, "");
}

enum error error_set(enum error err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    split_hint();
    return err;
}

enum error error_prefix(enum error err, const char *fmt, ...) {
    char before[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(before, sizeof before, fmt, ap);
    va_end(ap);
    if (hint) hint[-1] = '\n';
    size_t n = strlen(before);
    memmove(message + n, message, sizeof message - n);
    memcpy(message, before, n);
    message[sizeof message - 1] = '\0';
    split_hint();
    return err;
}
