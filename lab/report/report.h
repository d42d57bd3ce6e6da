/* The report of a run or an experiment: sections of text, plots and tables, written as one self-contained HTML file,
 * as Markdown, one SVG, or plain text for a terminal. The same runs give the same text. */
#pragma once
#include "engine/base/memory.h"
#include "lab/draw/plot.h"

enum { REPORT_SECTIONS = 16, REPORT_TEXTS = 24, REPORT_PLOTS = 24, REPORT_TABLES = 20 };
struct report_section {
    const char *id, *title;
    const char *text[REPORT_TEXTS]; /* paragraphs */
    int ntexts;
    const char *command; /* to be typed, or NULL */
    const char *missing; /* the data is not there: what to do to get it; then there is nothing else */
    enum fold fold;
    struct plot plot[REPORT_PLOTS];
    int nplots, cut; /* cut: the number that did not fit */
    struct table table[REPORT_TABLES];
    int ntables;
};
struct report {
    const char *name, *question, *verdict;
    struct report_section section[REPORT_SECTIONS];
    int nsections;
    struct pool *pool;
    bool failed; /* out of memory */
};
/* path: a run's directory, or an experiment's, which holds a results.json, or the .json of ./bootstrap gpu-test. ERR_INPUT
 * when it is none of them. */
MUST_CHECK enum error report_read(const char *path, struct pool *pool, struct report *out);

enum report_format { REPORT_HTML, REPORT_MD, REPORT_TXT, REPORT_SVG, REPORT_FORMATS };
extern const char *const report_format_names[REPORT_FORMATS];
/* The format for the ending of the file's name; REPORT_FORMATS: there is none. */
enum report_format report_format_of(const char *path);
MUST_CHECK enum error report_write(const struct report *r, enum report_format format, FILE *out);
/* Into a file, whole or not at all; *bytes: its size. */
MUST_CHECK enum error report_save(const struct report *r, enum report_format format, const char *path, double *bytes);
/* REPORT_HTML alone: one file, no script, nothing from elsewhere. */
MUST_CHECK enum error report_html(const struct report *r, FILE *out);
