#include "engine/base/log.h"

#include "engine/base/text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Thread_local const char *prefix = "";
static _Atomic int most = LOG_INFO;

void log_set_prefix(const char *text) {
    prefix = text;
}

void log_set_level(enum log_level level) {
    most = level;
}

void log_line(enum log_level level, const char *fmt, ...) {
    static const char *const words[] = {"error: ", "warning: ", "", "debug: "};
    if ((int)level > most) return;
    char line[4096];
    int n = snprintf(line, sizeof line, "%s%s%s", prefix, *prefix ? ": " : "", words[level]);
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    n = n + m < (int)sizeof line - 2 ? n + m : (int)sizeof line - 2;
    text_defuse(line, "\n");
    line[n++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)n); /* a full or closed log never stops training */
    (void)written;
}
