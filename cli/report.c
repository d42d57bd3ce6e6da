/* engine report: a run, or an experiment, as one page to be read and handed in. */
#include "cli/cli.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lab/report.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_report;

struct options {
    const char *path, *out;
    enum report_format format;
    bool named; /* the format was */
};

static bool find_format(const char *name, enum report_format *out) {
    for (int i = 0; i < REPORT_FORMATS; i++) {
        if (strcmp(name, report_format_names[i]) != 0) continue;
        *out = (enum report_format)i;
        return true;
    }
    return false;
}

static int parse(struct options *o, int argc, char **argv) {
    const struct command *c = &command_report;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool out = !strcmp(argv[i], "-o") || !strcmp(argv[i], "--output");
        if (!strcmp(argv[i], "--format")) {
            o->named = true;
            if (!find_format(value, &o->format))
                return cli_usage(c, "--format is html, md, csv, json or svg, not '%s'", value);
            i++;
        } else if (out) {
            if (!*value) return cli_usage(c, "%s needs the name of a file", argv[i]);
            o->out = argv[++i];
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return cli_usage(c, "unknown option '%s'", argv[i]);
        } else if (o->path) {
            return cli_usage(c, "one directory, not '%s' and '%s'", o->path, argv[i]);
        } else {
            o->path = argv[i];
        }
    }
    if (!o->path) return cli_usage(c, "a report of what? a run's or an experiment's directory");
    const char *dot = o->out ? strrchr(o->out, '.') : NULL;
    if (!o->named && dot) find_format(dot + 1, &o->format); /* else HTML, whatever it is called */
    return 0;
}

static enum error write_out(const struct options *o, const struct report *r, struct pool *pool) {
    struct markup text;
    const char *path = o->out;
    if (!path) path = pool_printf(pool, "%s/report.%s", o->path, report_format_names[o->format]);
    if (!path) return ERR_MEMORY;
    markup_init(&text);
    enum error err = report_write(r, o->format, &text);
    if (err == ERR_NONE && !strcmp(path, "-")) {
        fwrite(text.text, 1, text.length, stdout);
        if (fflush(stdout) != 0) err = FAIL(ERR_IO, "cannot write the report");
    } else if (err == ERR_NONE) {
        err = file_replace(path, text.text, text.length);
        char bytes[32];
        if (err == ERR_NONE)
            printf("%s\nwrote %s (%s)\n", r->verdict, path,
                   text_of_bytes((double)text.length, bytes));
    }
    markup_fini(&text);
    return err;
}

static int run_report(int argc, char **argv) {
    struct options o = {.format = REPORT_HTML};
    struct pool *pool;
    int code = parse(&o, argc, argv);
    if (code) return code;
    enum error err = pool_create(&pool);
    if (err != ERR_NONE) return cli_fail(err);
    struct report *r = pool_alloc(pool, sizeof *r);
    err = r ? report_read(o.path, pool, r) : ERR_MEMORY;
    if (err == ERR_NONE) err = write_out(&o, r, pool);
    code = err == ERR_NONE ? 0 : cli_fail(err);
    pool_free(pool);
    return code;
}

const struct command command_report = {
    .name = "report",
    .arguments = "RUN_DIR|EXPERIMENT_DIR [-o FILE] [--format html|md|csv|json|svg]",
    .summary = "tells what a run or an experiment came to, as one page with plots",
    .help = "  DIR                a run's directory, or that of an experiment (engine compare)\n"
            "  -o, --output FILE  where to; - is standard output; by itself report.html in DIR\n"
            "  --format F         html: one page that needs nothing else, for screens, phones and\n"
            "                     paper; md; csv and json: all tables; svg: all plots; by itself\n"
            "                     what FILE ends in, else html\n"
            "What a run or experiment has no data for is left out, with a line on how to get it.\n"
            "Exit codes: 0; 64 usage; 65 damaged results; 66 no finished run; 73, 74 not written\n",
    .run = run_report,
};
