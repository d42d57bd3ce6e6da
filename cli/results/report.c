/* engine report: a run, an experiment, or the proof of a GPU, as one page to be read and handed in. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lab/report/report.h"

#include <stdio.h>
#include <string.h>

struct report_options {
    const char *path, *out;
    int format; /* -1: as 'out' ends */
};
#define OPTIONS_STRUCT struct report_options

static const char *report_format_name(int i) {
    return i < REPORT_FORMATS ? report_format_names[i] : NULL;
}

/* HTML, where the file's name says nothing else. */
static enum report_format format_of(const struct report_options *o) {
    enum report_format named = o->out ? report_format_of(o->out) : REPORT_FORMATS;
    return o->format >= 0 ? (enum report_format)o->format : named < REPORT_FORMATS ? named : REPORT_HTML;
}

static enum error report_write_out(const struct report_options *o, const struct report *r, struct pool *pool) {
    double length;
    enum report_format format = format_of(o);
    const char *path = o->out, *end = text_ends(o->path, ".json") ? strrchr(o->path, '.') : NULL;
    if (!path && end) path = pool_printf(pool, "%.*s.%s", (int)(end - o->path), o->path, report_format_names[format]);
    if (!path) path = pool_printf(pool, "%s/report.%s", o->path, report_format_names[format]);
    if (!path) return ERR_MEMORY;
    if (!strcmp(path, "-")) return report_write(r, format, stdout);
    TRY(report_save(r, format, path, &length));
    char bytes[32];
    printf("%s\nwrote %s (%s)\n", r->verdict, path, text_of_bytes(length, bytes));
    return ERR_NONE;
}

static int report_command(const struct cli *cli) {
    const struct report_options *o = cli->options;
    if (o->format < 0 && o->out && (text_ends(o->out, ".csv") || text_ends(o->out, ".json")))
        return cli_usage(cli,
                         "a report is HTML, Markdown, SVG or text: for '%s' take results.csv, results.json, "
                         "metrics.csv or summary.json",
                         o->out);
    struct report *r = pool_alloc(cli->pool, sizeof *r);
    enum error err = r ? report_read(o->path, cli->pool, r) : ERR_MEMORY;
    if (err == ERR_NONE) err = report_write_out(o, r, cli->pool);
    return cli_end(err);
}

static const struct option options[] = {
    {"DIR", NULL, "a run's directory, that of an experiment (engine compare), or the .json of ./bootstrap gpu-test",
     CONFIG_STRING, AT(path), .missing = "a report of what? a run's or an experiment's directory", .one = "directory"},
    {"-o", "FILE", "output file; - is standard output; default: report.html in DIR, or beside the .json", CONFIG_STRING,
     AT(out), .wants = "the name of a file", .also = "--output"},
    {"--format", "F",
     "html: one self-contained page for screens, phones and paper; md; svg: all plots; txt: for a terminal; default: "
     "the ending of FILE, else html",
     CONFIG_ENUM, AT(format), .word = report_format_name},
    {0}};

const struct command command_report = {
    .name = "report",
    .also = "plot|plots|html|export_html",
    .summary = "writes the results of a run or an experiment as one page with plots",
    OPTIONS(options),
    .notes = "Sections without data are left out; a line says how to get the data.\n"
             "Exit codes: 0; 64 usage; 65 damaged results; 66 no finished run; 73, 74 not written\n",
    .standard = &(const struct report_options){.format = -1},
    .run = report_command,
};
