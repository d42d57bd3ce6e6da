/* What the first steps of a run have chosen by their own time (ddp.bucket: tune, comm.algorithm: tune): a curve a key. */
#include "lab/report/data.h"

#include <string.h>

static enum error chosen_plot(struct report *r, struct report_section *s, const struct report_data *d,
                              const struct report_cell *c, const struct json_value *key) {
    const struct json_value *ms = json_member(key, "step_ms", JSON_OBJECT);
    const char *chosen = json_text(key, "chosen");
    struct plot *p;
    double *y;
    if (!ms || !ms->count) return ERR_NONE;
    TRY(report_plot(r, s, PLOT_GROUPED, 1, &p));
    if (!p) return ERR_NONE;
    p->title =
        report_say(r, "%s by the run's first steps: %s%s", key->key, report_cell_name(r, d, c), report_in(r, c->place));
    p->about = "Each bar is a choice, and its length the median time of its steps. The first is the default.";
    p->x = (struct plot_axis){.label = "step time", .unit = PLOT_SECONDS, .zero = true};
    p->ncategories = ms->count;
    TRY(report_take(r, (size_t)ms->count, sizeof *p->category, &p->category));
    TRY(report_take(r, (size_t)ms->count, sizeof *y, &y));
    for (int i = 0; i < ms->count; i++) {
        const char *name = ms->children[i].key;
        p->category[i] = report_say(r, "%s%s", name, strcmp(name, chosen) ? "" : " (taken)");
        y[i] = json_number(ms, name) * 1e-3;
    }
    p->nseries = 1;
    p->series[0] = (struct plot_series){.name = "step time", .y = y, .n = ms->count, .colour = 0};
    return ERR_NONE;
}

enum error report_chosen(struct report *r, struct report_section *s, const struct report_data *d) {
    bool any = false;
    for (int i = 0; i < d->ncells; i++) {
        const struct json_value *tuned = d->cell[i].run[0].tuned;
        for (int k = 0; tuned && k < tuned->count; k++) {
            const struct json_value *key = &tuned->children[k];
            TRY(chosen_plot(r, s, d, &d->cell[i], key));
            report_print(r, s, "%s of %s%s: %s (%s).", key->key, report_cell_name(r, d, &d->cell[i]),
                         report_in(r, d->cell[i].place), json_text(key, "chosen"), json_text(key, "by"));
            any = true;
        }
    }
    if (any)
        report_paragraph(s, "A choice that was measured was taken only if its steps were clearly faster than those of "
                            "the default. These steps are part of the training, and of the step times of this page.");
    return ERR_NONE;
}
