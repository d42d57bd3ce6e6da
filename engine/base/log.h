/* Log lines on standard error (or the fd given), one write each, with a prefix that names the rank.
 */
#pragma once
#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* The prefix ("rank 2", "" for none) of this thread's lines; the text must outlive the thread. */
void log_set_prefix(const char *prefix);
void log_set_level(enum log_level most); /* process-wide; default LOG_INFO */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
