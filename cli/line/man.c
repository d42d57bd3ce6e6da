/* engine help --man: the manual's pages, as roff, made of what the help is made of: the table of commands,
 * the schema of the configuration, the table of errors. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/model/layer.h"
#include "engine/settings/run_config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- roff ---- */

/* Text as it is: what roff would take for its own is escaped. */
static void roff_text(FILE *out, const char *text, size_t n) {
    if (n && (*text == '.' || *text == '\'')) fputs("\\&", out);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
    }
}

static void roff_line(FILE *out, const char *macro, const char *text, size_t n) {
    fputs(macro, out);
    roff_text(out, text, n);
    fputc('\n', out);
}

static void roff_put(FILE *out, const char *text) {
    roff_line(out, "", text, strlen(text));
}

static void roff_title(FILE *out, const char *name, int section) {
    fprintf(out, ".TH \"");
    for (const char *p = name; *p; p++) fputc(toupper((unsigned char)*p), out);
    fprintf(out, "\" \"%d\" \"\" \"engine %s\" \"Engine\"\n.nh\n.ad l\n", section, ENGINE_VERSION);
}

static void roff_name(FILE *out, const char *name, const char *summary) {
    fputs(".SH NAME\n", out);
    roff_text(out, name, strlen(name));
    fputs(" \\- ", out);
    roff_put(out, summary);
}

/* ---- commands ---- */
/* Paragraphs; lines that begin with blanks stay as they are. */
static void roff_notes(FILE *out, const char *notes) {
    bool filled = true;
    if (notes) fputs(".PP\n", out);
    for (const char *line = notes; line && *line;) {
        size_t n = strcspn(line, "\n");
        if (filled != (*line != ' ')) fputs((filled = !filled) ? ".fi\n" : ".nf\n", out);
        roff_line(out, n ? "" : ".PP", line, n);
        line += n + (line[n] == '\n');
    }
    if (!filled) fputs(".fi\n", out);
}

static void roff_options(FILE *out, const struct command *form) {
    char left[OPTION_TEXT], text[OPTION_TEXT];
    for (const struct option *o = form->options; o && o->name; o++) {
        const char *help = option_help(o, text);
        if (o->head) fputs(".PP\n", out), roff_put(out, o->head);
        if (!help) continue;
        fputs(".TP\n\\fB", out);
        option_left(o, left);
        roff_text(out, left, strlen(left));
        fputs("\\fR\n", out);
        roff_put(out, help);
    }
    roff_notes(out, form->notes);
}

static void roff_see_also(FILE *out, const char *but) {
    fputs(".SH SEE ALSO\n", out);
    if (*but) fputs(".BR engine (1),\n", out);
    for (int i = 0; command_name(i); i++)
        if (strcmp(command_name(i), but) != 0) fprintf(out, ".BR engine\\-%s (1),\n", command_name(i));
    fputs(".BR engine.yaml (5)\n", out);
}

static void command_page(FILE *out, const struct command *c) {
    char name[64], usage[USAGE_TEXT];
    const struct command *form;
    snprintf(name, sizeof name, "engine-%s", c->name);
    roff_title(out, name, 1);
    roff_name(out, name, c->summary);
    fputs(".SH SYNOPSIS\n", out);
    for (int i = 0; (form = command_form(c, i)); i++) {
        command_usage(c, form, usage);
        roff_line(out, ".B ", usage, strlen(usage));
        fputs(".br\n", out);
    }
    fputs(".SH DESCRIPTION\n", out);
    fprintf(out, "%c", toupper((unsigned char)*c->summary));
    roff_text(out, c->summary + 1, strlen(c->summary + 1));
    fputs(".\n.SH OPTIONS\n", out);
    for (int i = 0; (form = command_form(c, i)); i++) {
        if (form != c) {
            fprintf(out, ".PP\n\\fBengine %s %s\\fR:\n", c->name, form->name);
            roff_put(out, form->summary);
        }
        roff_options(out, form);
    }
    if (c->forms) roff_notes(out, c->notes);
    roff_see_also(out, c->name);
}

/* Exit codes, each with all that leads to it. */
static void man_exit_section(FILE *out) {
    static const struct {
        const char *text;
        int code;
    } ends[] = {
#define X(name, text, code) {text, code},
        ERRORS(X)
#undef X
    };
    enum { ENDS = sizeof ends / sizeof *ends };
    fputs(".SH EXIT STATUS\n", out);
    for (int code = 0; code < 128; code++) {
        bool first = true;
        for (int i = 0; i < ENDS; i++) {
            if (ends[i].code != code) continue;
            if (first) fprintf(out, ".TP\n.B %d\n", code);
            fprintf(out, "%s%s\n", first ? "" : "or ", ends[i].text);
            first = false;
        }
    }
    fputs(".TP\n.B 130, 143\nstopped by SIGINT or by SIGTERM, SIGHUP or SIGUSR1, after saving\n", out);
}

static void main_page(FILE *out) {
    roff_title(out, "engine", 1);
    roff_name(out, "engine",
              "trains a network on several devices, and compares how they share "
              "gradients");
    fputs(".SH SYNOPSIS\n.B engine\n.I COMMAND\n[ARGUMENTS]\n.SH DESCRIPTION\n", out);
    roff_put(out,
             "Trains one network from one YAML file on one device (single), with a parameter "
             "server (dp) or with an all-reduce among processes (ddp), with the same bits, and reports where the time "
             "went. Without a file it trains a small network on generated data.");
    fputs(".SH COMMANDS\n", out);
    for (int i = 0; command_name(i); i++) {
        fprintf(out, ".TP\n.B %s\n", command_name(i));
        roff_put(out, command_find(command_name(i))->summary);
    }
    man_exit_section(out);
    roff_see_also(out, "");
}

/* ---- the configuration ---- */
struct entries {
    FILE *out;
    const char *before; /* the paths: "", "conv2d." */
};

static void key_entry(void *user, const struct config_key *key) {
    const struct entries *e = user;
    FILE *out = e->out;
    fprintf(out, ".TP\n.B %s", e->before);
    roff_line(out, "", key->path, strlen(key->path));
    if (key->with) {
        fputs("With ", out);
        roff_text(out, key->with, strlen(key->with));
        fputs(": ", out);
    }
    fputs("\\&", out);
    roff_text(out, key->kind, strlen(key->kind));
    if (key->field->standard && *key->field->standard) {
        fputs("; default ", out);
        roff_text(out, key->field->standard, strlen(key->field->standard));
    }
    fputs(".\n", out);
    if (!key->help) return;
    fputs(".br\n", out);
    roff_put(out, key->help);
    if (!key->also) return;
    fputs(".br\nIn other tools: ", out);
    roff_put(out, key->also);
}

static enum error layer_entries(const struct layer_ops *layer, struct pool *pool, FILE *out) {
    const char *before = pool_printf(pool, "%s.", layer->section.name);
    struct layer_fact facts[LAYER_FACTS];
    int count;
    if (!before) return ERR_MEMORY;
    TRY(layer_tell(layer, pool, facts, &count));
    fprintf(out, ".TP\n.B %s\n", layer->section.name);
    roff_put(out, layer->section.help);
    for (int i = 0; i < count; i++) {
        fprintf(out, ".br\n%s%s\\&", facts[i].name, *facts[i].name ? ": " : "");
        roff_put(out, facts[i].text);
    }
    return config_walk(&layer->section, pool, key_entry, &(struct entries){out, before});
}

static enum error man_layers_section_of(struct pool *pool, FILE *out) {
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    fputs(".SH LAYERS\n", out);
    roff_put(out, "The items of the list model.layers, with their parameters. All layers also have the first ones.");
    roff_put(out, layer_dimensions);
    TRY(config_walk(&layer_common_section, pool, key_entry, &(struct entries){out, "LAYER."}));
    for (int i = 0; i < n; i++) TRY(layer_entries(kinds[i], pool, out));
    return ERR_NONE;
}

static enum error config_page(struct pool *pool, FILE *out) {
    roff_title(out, "engine.yaml", 5);
    roff_name(out, "engine.yaml", "the configuration of a run");
    fputs(".SH DESCRIPTION\n", out);
    roff_put(out, "A YAML map; every key may be left out, and the empty file is valid. Unknown and "
                  "repeated keys are errors. A section takes a bare value for its main key: 'batch: 64' "
                  "is 'batch: {size: 64}'. On the command line a key is changed by '--set "
                  "optimizer.lr=0.1'. Times are written 10s or 250ms, sizes 25MB, rates 1Gbit, lengths "
                  "of training 5ep (epochs) or 200st (steps).");
    fputs(".SH KEYS\n", out);
    TRY(config_walk(&run_schema, pool, key_entry, &(struct entries){out, ""}));
    TRY(man_layers_section_of(pool, out));
    fputs(".SH SEE ALSO\n.BR engine (1),\n.BR engine\\-run (1),\n.BR engine\\-config (1)\n", out);
    return ERR_NONE;
}

/* ---- pages ---- */
static enum error print_page(const char *name, struct pool *pool, FILE *out) {
    const struct command_alias *alias = command_alias(name);
    const struct command *c = alias ? alias->command : command_find(name);
    if (!strcmp(name, "engine.yaml")) return config_page(pool, out);
    if (c)
        command_page(out, c);
    else if (!strcmp(name, "engine"))
        main_page(out);
    else
        return FAIL(ERR_USAGE, "no page '%s'", name);
    return ERR_NONE;
}

static enum error man_print_to(const char *name, FILE *out) {
    struct pool *pool;
    TRY(pool_create(&pool));
    enum error err = print_page(name, pool, out);
    pool_free(pool);
    return err;
}

enum error man_print(const char *name) {
    return man_print_to(name ? name : "engine", stdout);
}

static enum error write_page(const char *folder, const char *name) {
    char path[4096];
    struct file_text page;
    const char *before = command_find(name) ? "engine-" : "", *dot = strchr(name, '.');
    if (snprintf(path, sizeof path, "%s/%s%s.%d", folder, before, name, dot ? 5 : 1) >= (int)sizeof path)
        return FAIL(ERR_CREATE, "the path of '%s' is too long", folder);
    TRY(file_text_open(&page));
    return file_text_save(&page, man_print_to(name, page.out), path);
}

enum error man_write_all(const char *folder) {
    TRY(file_make_folders(folder));
    TRY(write_page(folder, "engine"));
    TRY(write_page(folder, "engine.yaml"));
    for (int i = 0; command_name(i); i++) TRY(write_page(folder, command_name(i)));
    return ERR_NONE;
}
