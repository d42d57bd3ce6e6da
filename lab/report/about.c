/* How the runs were made: what differed, on what machine, and how to do it again. */
#include "lab/report/data.h"

#include <string.h>

/* Whether a key is about the place of a run, which differs by nature. */
static bool key_of_place(const char *key) {
    static const char *const keys[] = {"name", "log.dir", "run.port", "run.token", "checkpoint.resume"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static bool key_varies(const struct report_data *d, const char *key) {
    for (int i = 1; i < d->ncells; i++)
        if (strcmp(run_result_setting(d->cell[i].run, key), run_result_setting(d->cell[0].run, key)) != 0) return true;
    return false;
}

/* The keys of any cell that are not the same in all, each once; gives how many. */
static int keys_differing(const struct report_data *d, const char **key, int most) {
    int n = 0;
    for (int i = 0; i < d->ncells; i++)
        for (int k = 0; k < d->cell[i].run[0].nsettings && n < most; k++) {
            const char *name = d->cell[i].run[0].setting[k].key;
            int seen = 0;
            while (seen < n && strcmp(key[seen], name) != 0) seen++;
            if (seen == n && !key_of_place(name) && key_varies(d, name)) key[n++] = name;
        }
    return n;
}

/* The values that a key has in the cells of a side: "cpu:1, cpu:2". */
static const char *key_values(struct report *r, const struct report_data *d, int side, const char *key) {
    const char *all = "";
    for (int i = 0; i < d->ncells; i++) {
        if (d->cell[i].side != side) continue;
        const char *v = run_result_setting(d->cell[i].run, key);
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= d->cell[k].side == side && !strcmp(run_result_setting(d->cell[k].run, key), v);
        if (!seen) all = report_join(r, all, ", ", *v ? v : "(none)");
    }
    return all;
}

/* The table of the keys whose values differ between cells. */
static enum error about_differences_table(struct report *r, struct report_section *s, const struct report_data *d) {
    const char *keys[64], *heads[REPORT_SIDES + 1] = {"key"};
    int n = keys_differing(d, keys, 64);
    struct table *t;
    for (int i = 0; i < d->nsides; i++) heads[1 + i] = d->side[i];
    TRY(report_table(r, s, "Keys whose values differ between cells", 1 + d->nsides, n, heads, &t));
    t->words = t->columns;
    for (int i = 0; i < n; i++) {
        table_row(t, i + 1)[0] = keys[i];
        for (int k = 0; k < d->nsides; k++) table_row(t, i + 1)[1 + k] = key_values(r, d, k, keys[i]);
    }
    report_paragraph(s, "All other keys have the same values everywhere; each run's resolved.yaml has them.");
    return ERR_NONE;
}

static enum error about_all_settings(struct report *r, struct report_section *s, const struct run_result *run) {
    static const char *const heads[] = {"key", "value"};
    struct table *t;
    TRY(report_table(r, s, "The configuration of the run, with the values that the engine chose", 2, run->nsettings,
                     heads, &t));
    t->words = 2;
    for (int i = 0; i < run->nsettings; i++) {
        table_row(t, i + 1)[0] = run->setting[i].key;
        table_row(t, i + 1)[1] = run->setting[i].value;
    }
    return ERR_NONE;
}

enum error report_settings(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "settings", "Configuration");
    s->fold = d->ncells > 1 ? FOLD_SHUT : FOLD_ASIDE; /* a run's resolved.yaml has it all */
    return d->ncells > 1 ? about_differences_table(r, s, d) : about_all_settings(r, s, d->cell[0].run);
}

/* ---- the machine ---- */

static const char *about_value_text(struct report *r, const struct json_value *v) {
    const char *all = "";
    if (v->kind == JSON_BOOL) return v->truth ? "yes" : "no";
    if (v->kind == JSON_NUMBER && v->key && strstr(v->key, "memory")) return report_value(r, PLOT_BYTES, v->number);
    if (v->kind == JSON_STRING || v->kind == JSON_NUMBER) return v->text;
    for (int i = 0; i < v->count; i++)
        all = report_say(r, "%s%s%s%s%s", all, i ? ", " : "", v->children[i].key ? v->children[i].key : "",
                         v->children[i].key ? " " : "", about_value_text(r, &v->children[i]));
    return *all ? all : "-";
}

enum error report_environment(struct report *r, const struct report_data *d) {
    static const char *const heads[] = {"what", "here"};
    struct report_section *s = report_section(r, "environment", "The machine");
    struct table *t;
    s->fold = FOLD_SHUT;
    if (!d->environment || !d->environment->count) {
        s->missing = "The machine is not known, because the runs have no env.json. Runs of this version write one.";
        return ERR_NONE;
    }
    TRY(report_table(r, s, "The machine of the runs", 2, d->environment->count, heads, &t));
    t->words = 2, t->rows = 0;
    for (int i = 0; i < d->environment->count; i++) {
        const char *text = about_value_text(r, &d->environment->children[i]);
        if (!strcmp(text, "-") || !*text) continue; /* it is not known, or there is none */
        table_row(t, ++t->rows)[0] = d->environment->children[i].key;
        table_row(t, t->rows)[1] = text;
    }
    return ERR_NONE;
}

/* ---- again ---- */

enum error report_again(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "again", "How to run it again");
    if (*d->command)
        s->command = d->command;
    else if (d->experiment)
        s->command = report_say(r, "engine compare %s.yaml", d->name);
    else
        s->command = report_say(r, "engine run %s/resolved.yaml --set log.dir=again", d->path);
    report_paragraph(s, d->experiment
                            ? "Finished runs are not repeated; in an empty folder all of them are run."
                            : "The same configuration gives the same bits, here and on any number of devices.");
    return ERR_NONE;
}
