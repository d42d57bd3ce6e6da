/* The progress of a run on standard error: on a terminal one line that is redrawn, elsewhere plain lines. */
#include "engine/tell/tell.h"

#include "engine/settings/job.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REDRAW_NS = 200000000, BAR = 12 };
struct progress {
    int fd;
    bool bar, quiet, drawn, colour;
    int64_t last, started, first_step;
};

enum error progress_open(const struct job *job, struct progress **out) {
    struct progress *p = calloc(1, sizeof *p);
    if (!p) return FAIL(ERR_MEMORY, "no memory for progress");
    const char *term = getenv("TERM");
    p->fd = job->console_err;
    p->quiet = job->quiet;
    p->bar = job->progress && isatty(p->fd) && term && strcmp(term, "dumb");
    const char *no_colour = getenv("NO_COLOR");
    p->colour = p->bar && !(no_colour && *no_colour);
    p->first_step = -1;
    *out = p;
    return ERR_NONE;
}

static void bar_wipe(struct progress *p) {
    if (p->drawn) dprintf(p->fd, "\r\033[K");
    p->drawn = false;
}

static double progress_eta(struct progress *p, const struct progress_state *s) {
    int64_t now = clock_ns();
    if (!s->steps) return fmax(0, s->budget - s->seconds);
    if (p->first_step < 0) p->first_step = s->step - 1, p->started = now - (int64_t)(s->ms * 1e6);
    return clock_seconds(now - p->started) / (double)(s->step - p->first_step) * (double)(s->steps - s->step);
}

/* "3/10", or "3" where nobody knows of how many. */
static char *progress_so_far(int64_t at, int64_t all, char out[48]) {
    snprintf(out, 48, all ? "%lld/%lld" : "%lld", (long long)at, (long long)all);
    return out;
}

static void bar_draw(struct progress *p, const struct progress_state *s, double left) {
    char line[512], bar[BAR + 1], rate[32], when[32];
    char epoch[48], step[48];
    int full = s->steps ? (int)(s->step * BAR / s->steps) : (int)fmin(BAR, s->seconds / s->budget * BAR);
    for (int i = 0; i < BAR; i++) bar[i] = i < full ? '=' : i == full ? '>' : '.';
    bar[BAR] = '\0';
    int n =
        snprintf(line, sizeof line, "epoch %s [%s] %s  loss %.4f  %s/s  comm %.0f%%  eta %s",
                 progress_so_far(s->epoch, s->epochs, epoch), bar, progress_so_far(s->step, s->steps, step), s->loss,
                 text_of_count((int64_t)s->samples_per_s, rate), s->comm_exposed * 100, text_of_seconds(left, when));
    int columns = file_columns(p->fd), room = (columns ? columns : 80) - 1;
    if (n > room) line[room > 0 ? room : 0] = '\0';
    dprintf(p->fd, "\r%s%s%s\033[K", p->colour ? "\033[36m" : "", line, p->colour ? "\033[0m" : "");
    p->drawn = true;
}

static void progress_line(struct progress *p, const struct progress_state *s, double left) {
    char when[32], stamp[32], epoch[48], step[48], accuracy[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    strftime(stamp, sizeof stamp, "%H:%M:%S", localtime_r(&now, &tm));
    if (!isnan(s->accuracy)) snprintf(accuracy, sizeof accuracy, " acc=%.3f", s->accuracy);
    dprintf(p->fd, "%s epoch=%s step=%s loss=%.4f%s lr=%.4g samples/s=%.0f comm=%.2f eta=%s\n", stamp,
            progress_so_far(s->epoch, s->epochs, epoch), progress_so_far(s->step, s->steps, step), s->loss, accuracy,
            s->lr, s->samples_per_s, s->comm_exposed, text_of_seconds(left, when));
}

void progress_show(struct progress *p, const struct progress_state *s, bool line) {
    if (p->quiet) return;
    int64_t now = clock_ns();
    double left = progress_eta(p, s);
    if (p->bar) {
        if (now - p->last < REDRAW_NS && !s->last) return;
        p->last = now;
        bar_draw(p, s, left);
    } else if (line || s->last)
        progress_line(p, s, left);
}

void progress_say(struct progress *p, const char *fmt, ...) {
    if (p->quiet) return;
    bar_wipe(p);
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    dprintf(p->fd, "%s\n", text_defuse(line, ""));
}

void progress_close(struct progress *p) {
    if (!p) return;
    bar_wipe(p);
    free(p);
}
