/* A lab's lab.yaml. */
#include "lab/lesson/lesson.h"

#include "engine/base/text.h"
#include "engine/device/device.h"
#include "lab/lesson/claim.h"
#include "lab/process/compile.h"
#include "lab/process/process.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- the schema ---- */

struct raw_needs {
    int64_t gpus, nodes;
    const char *python;
};
#define AT(member) offsetof(struct raw_needs, member)
static const struct config_field needs_fields[] = {
    {"gpus", CONFIG_INT, AT(gpus), "0", "Number of GPUs on this host", .min = 0, .max = 64},
    {"nodes", CONFIG_INT, AT(nodes), "0", "Number of hosts in the allocation in which the lab runs", .min = 0,
     .max = 4096},
    {"python", CONFIG_STRING, AT(python), NULL, "Module that python3 has to find"},
    {.key = NULL},
};
#undef AT
static const struct config_section needs_schema = {
    .name = "needs", .fields = needs_fields, .size = sizeof(struct raw_needs)};

struct lesson_raw {
    const char *title, *question, *score;
    double minutes;
    struct raw_needs needs;
    struct node *hand_in, *steps, *look, *claims;
};
#define AT(member) offsetof(struct lesson_raw, member)
static const struct config_field fields[] = {
    {"title", CONFIG_STRING, AT(title), NULL, .help = "The subject of the lab, in a few words"},
    {"question", CONFIG_STRING, AT(question), NULL, .help = "What it answers"},
    {"minutes", CONFIG_REAL, AT(minutes), "1", "Approximate duration", .min = 0, .max = 10000},
    {"needs", CONFIG_SECTION, AT(needs), NULL, .help = "What the lab needs of this machine", .extra = &needs_schema},
    {"hand_in", CONFIG_NODE, AT(hand_in), NULL,
     .help = "Files of the folder that the reader writes; those in C are built before the first step"},
    {"score", CONFIG_STRING, AT(score), NULL, .help = "The number by which hand-ins are sorted: STEP.SIDE.METRIC"},
    {"steps", CONFIG_NODE, AT(steps), NULL, .help = "The steps to run, in this order"},
    {"look", CONFIG_NODE, AT(look), NULL, .help = "What to look at in the output of the steps"},
    {"claims", CONFIG_NODE, AT(claims), NULL, .help = "The expected results, which are checked"},
    {.key = NULL},
};
#undef AT
static const struct config_section schema = {
    .name = "lab", .fields = fields, .size = sizeof(struct lesson_raw), .help = "A lab"};

struct raw_step {
    const char *name, *into;
    struct node *words[LESSON_KINDS], *quick, *under;
    int64_t exit;
};
#define AT(member) offsetof(struct raw_step, member)
static const struct config_field step_fields[] = {
    {"name", CONFIG_STRING, AT(name), NULL, .help = "Name of the step in claims; also its folder's name"},
    {"run", CONFIG_NODE, AT(words[LESSON_RUN]), NULL, .help = "What 'engine run' takes"},
    {"compare", CONFIG_NODE, AT(words[LESSON_COMPARE]), NULL, .help = "What 'engine compare' takes: an experiment"},
    {"bench", CONFIG_NODE, AT(words[LESSON_BENCH]), NULL, .help = "What 'engine bench' takes"},
    {"engine", CONFIG_NODE, AT(words[LESSON_ENGINE]), NULL, .help = "Any other command"},
    {"read", CONFIG_NODE, AT(words[LESSON_READ]), NULL,
     .help = "A JSON file of the folder: numbers of the reader's own"},
    {"quick", CONFIG_NODE, AT(quick), NULL, .help = "Words that are added in quick form"},
    {"under", CONFIG_NODE, AT(under), NULL, .help = "A launcher of processes that starts it: srun --nodes=2"},
    {"exit", CONFIG_INT, AT(exit), "0", "Exit code that the step should end with", .min = 0, .max = 255},
    {"into", CONFIG_STRING, AT(into), NULL, .help = "The step whose run this step resumes"},
    {.key = NULL},
};
#undef AT
static const struct config_section step_schema = {
    .name = "a step", .fields = step_fields, .size = sizeof(struct raw_step)};

struct raw_claim {
    const char *text, *check;
    bool quick, timed, python;
};
#define AT(member) offsetof(struct raw_claim, member)
static const struct config_field claim_fields[] = {
    {"text", CONFIG_STRING, AT(text), NULL, .help = "The expected result, in words"},
    {"check", CONFIG_STRING, AT(check), NULL,
     .help = "The same as a condition: race.ddp.step_time < race.dp.step_time"},
    {"quick", CONFIG_BOOL, AT(quick), "true", "Also judged in quick form"},
    {"python", CONFIG_BOOL, AT(python), "true", .help = "Also of code that is in Python"},
    {"timed", CONFIG_BOOL, AT(timed), "false",
     "Depends on how fast the machine is, though its check is not about time"},
    {.key = NULL},
};
#undef AT
static const struct config_section claim_schema = {
    .name = "a claim", .fields = claim_fields, .size = sizeof(struct raw_claim)};

/* ---- steps ---- */

struct lesson_reader {
    struct lesson *l;
    struct config_errors *e;
};

struct step_words {
    const char **at; /* LESSON_WORDS of them, and a NULL */
    int n;
};

static enum error add_word(struct lesson_reader *r, struct step_words *w, const struct node *at, const char *word,
                           size_t n) {
    if (w->n == LESSON_WORDS) {
        config_error(r->e, at, false, "more than %d words", LESSON_WORDS);
        return ERR_CONFIG;
    }
    w->at[w->n] = pool_strndup(r->l->pool, word, n);
    return w->at[w->n++] ? ERR_NONE : ERR_MEMORY;
}

/* A text is split at blanks; a list is taken as it is. */
static enum error add_words(struct lesson_reader *r, struct step_words *s, const struct node *from) {
    if (!from) return ERR_NONE;
    for (int i = 0; from->kind == NODE_LIST && i < from->count; i++) {
        const struct node *item = from->items[i];
        if (item->kind != NODE_SCALAR) {
            config_error(r->e, item, false, "words of a command are a text, or a list of texts");
            return ERR_CONFIG;
        }
        TRY(add_word(r, s, item, item->text, strlen(item->text)));
    }
    const char *at = from->kind == NODE_SCALAR ? from->text : "";
    while (*(at += strspn(at, " \t\n"))) {
        size_t n = strcspn(at, " \t\n");
        TRY(add_word(r, s, from, at, n));
        at += n;
    }
    if (from->kind != NODE_MAP) return ERR_NONE;
    config_error(r->e, from, false, "words of a command are a text, or a list of texts");
    return ERR_CONFIG;
}

static bool lesson_is_name(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < 40 && (isalnum((unsigned char)*name)) &&
           n == strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
}

static void lesson_check_name(struct lesson_reader *r, const struct lesson_step *s) {
    const struct node *at = node_get(s->place, "name");
    if (!lesson_is_name(s->name))
        config_error(r->e, at ? at : s->place, false, "a step's name is of letters, digits, _ and -, not '%s'",
                     s->name);
    else if (lesson_step_named(r->l, s->name, (int)strlen(s->name)) != (int)(s - r->l->step))
        config_error(r->e, at, false, "two steps are called '%s'", s->name);
}

static void lesson_check_into(struct lesson_reader *r, const struct lesson_step *s, const char *into) {
    if (!into) return;
    int from = lesson_step_named(r->l, into, (int)strlen(into));
    bool before = from >= 0 && &r->l->step[from] < s;
    if (!before || r->l->step[from].kind != LESSON_RUN || s->kind != LESSON_RUN)
        config_error(r->e, node_get(s->place, "into"), false, "'into' names a run among the earlier steps, not '%s'",
                     into);
}

/* Reads the words of a comparison that decide which cells it has. */
static void read_options(const struct lesson_step *s, const char *sets[LESSON_WORDS], struct experiment_source *out) {
    out->sets = sets;
    for (int i = 0; i < s->nwords; i++) {
        const char *word = s->words[i], *next = i + 1 < s->nwords ? s->words[i + 1] : "";
        bool valued = !strcmp(word, "--set") || !strcmp(word, "--repeats") || !strcmp(word, "--fail-if") ||
                      !strcmp(word, "--dir");
        if (!strcmp(word, "--set")) sets[out->nsets++] = next;
        if (!strcmp(word, "--repeats")) out->repeats = atoi(next);
        if (!strcmp(word, "--quick")) out->quick = true;
        if (*word != '-' && !out->path) out->path = word;
        i += valued;
    }
}

static enum error open_experiment(struct lesson_reader *r, struct lesson_step *s) {
    const char *sets[LESSON_WORDS];
    struct experiment_source source = {.quick = r->l->quick};
    char *report;
    read_options(s, sets, &source);
    if (!source.path) {
        config_error(r->e, s->place, false, "step '%s' compares no experiment", s->name);
        return ERR_CONFIG;
    }
    source.path = pool_printf(r->l->pool, "%s/%s", r->l->folder, source.path);
    s->experiment = calloc(1, sizeof *s->experiment);
    if (!s->experiment || !source.path) return FAIL(ERR_MEMORY, "cannot allocate an experiment");
    enum error err = experiment_open(&source, s->experiment, &report);
    if (err == ERR_NONE || err == ERR_MEMORY) return err;
    config_error(r->e, s->place, false, "step '%s': %s\n'engine compare %s' reports all errors", s->name,
                 error_message(), source.path);
    return ERR_CONFIG;
}

static enum error fill_step(struct lesson_reader *r, struct lesson_step *s, const struct raw_step *raw) {
    int kinds = 0;
    s->name = raw->name ? raw->name : "";
    s->into = raw->into ? raw->into : s->name;
    s->exit = (int)raw->exit;
    for (int i = 0; i < LESSON_KINDS; i++)
        if (raw->words[i]) s->kind = (enum lesson_kind)i, kinds++;
    lesson_check_name(r, s);
    lesson_check_into(r, s, raw->into);
    if (kinds != 1) {
        config_error(r->e, s->place, false,
                     "a step has one of run, compare, bench, engine and read\nas in {name: race, "
                     "compare: ps-vs-ring.yaml}");
        return ERR_CONFIG;
    }
    struct step_words words = {s->words, 0}, under = {s->under, 0};
    TRY(add_words(r, &words, raw->words[s->kind]));
    if (r->l->quick) TRY(add_words(r, &words, raw->quick));
    TRY(add_words(r, &under, raw->under));
    s->nwords = words.n;
    if (s->kind == LESSON_READ && (s->nwords != 1 || strchr(s->words[0], '/'))) {
        config_error(r->e, s->place, false, "'read' has the name of one file in this folder");
        return ERR_CONFIG;
    }
    bool judged = s->kind == LESSON_COMPARE && s->exit == 0;
    return judged ? open_experiment(r, s) : ERR_NONE;
}

static enum error read_step(struct lesson_reader *r, struct node *item) {
    struct raw_step raw;
    if (r->l->nsteps == LESSON_STEPS) {
        config_error(r->e, item, false, "more than %d steps", LESSON_STEPS);
        return ERR_NONE;
    }
    TRY(config_read(&step_schema, item, r->l->pool, r->e, &raw));
    struct lesson_step *s = &r->l->step[r->l->nsteps++];
    s->place = item;
    return fill_step(r, s, &raw);
}

static enum error read_claim(struct lesson_reader *r, struct node *item) {
    struct raw_claim raw;
    if (r->l->nclaims == LESSON_CLAIMS) {
        config_error(r->e, item, false, "more than %d claims", LESSON_CLAIMS);
        return ERR_NONE;
    }
    TRY(config_read(&claim_schema, item, r->l->pool, r->e, &raw));
    if (!raw.text || !raw.check) {
        config_error(r->e, item, false, "a claim has a 'text' for people and a 'check'");
        return ERR_NONE;
    }
    for (int i = 0; i < r->l->nfiles; i++)
        if (!raw.python && text_ends(r->l->hand_in[i], ".py")) return ERR_NONE;
    struct lesson_claim *c = &r->l->claim[r->l->nclaims++];
    *c = (struct lesson_claim){raw.text, raw.check, raw.quick, raw.timed, node_get(item, "check")};
    return ERR_NONE;
}

static enum error read_look(struct lesson_reader *r, struct node *item) {
    if (item->kind != NODE_SCALAR || r->l->nlooks == LESSON_LOOKS)
        config_error(r->e, item, false, "'look' is a list of up to %d texts", LESSON_LOOKS);
    else
        r->l->look[r->l->nlooks++] = item->text;
    return ERR_NONE;
}

/* No path: a hand-in's file is taken from its folder and from nowhere else. */
static enum error read_hand_in(struct lesson_reader *r, struct node *item) {
    const char *name = item->kind == NODE_SCALAR ? item->text : "";
    if (!*name || *name == '.' || strchr(name, '/') || r->l->nfiles == LESSON_FILES)
        config_error(r->e, item, false, "'hand_in' is a list of up to %d names of files in this folder", LESSON_FILES);
    else
        r->l->hand_in[r->l->nfiles++] = name;
    return ERR_NONE;
}

static enum error read_list(struct lesson_reader *r, const struct node *root, const char *key, struct node *list,
                            enum error (*take)(struct lesson_reader *, struct node *)) {
    if (!list || list->kind != NODE_LIST || list->count == 0) {
        config_error(r->e, list ? list : root, false, "'%s' is a list of one or more", key);
        return ERR_NONE;
    }
    for (int i = 0; i < list->count; i++) TRY(config_go_on(take(r, list->items[i])));
    return ERR_NONE;
}

/* ---- all ---- */

static enum error read_head(struct lesson_reader *r, struct lesson_raw *raw, struct node **root) {
    struct lesson *l = r->l;
    char *path = pool_printf(l->pool, "%s/lab.yaml", l->folder);
    if (!path) return ERR_MEMORY;
    enum error err = tree_read(path, l->pool, r->e, root);
    if (err == ERR_CONFIG && (*root)->count == 0) return err;
    TRY(config_go_on(err));
    TRY(config_go_on(config_read(&schema, *root, l->pool, r->e, raw)));
    l->title = raw->title ? raw->title : "", l->question = raw->question ? raw->question : "";
    l->minutes = raw->minutes, l->gpus = raw->needs.gpus, l->nodes = raw->needs.nodes, l->python = raw->needs.python;
    return raw->hand_in ? read_list(r, *root, "hand_in", raw->hand_in, read_hand_in) : ERR_NONE;
}

/* Experiments name what is built. */
static enum error lesson_build(const struct lesson *l) {
    for (int i = 0; i < l->nfiles; i++) {
        const char *path = pool_printf(l->pool, "%s/%s", l->folder, l->hand_in[i]), *object;
        if (!path) return ERR_MEMORY;
        if (compile_is_source(path)) TRY(compile_plugin(path, l->pool, &object));
    }
    return ERR_NONE;
}

/* As a claim that the number is above zero. */
static enum error read_score(struct lesson_reader *r, const char *score, const struct node *root) {
    if (!score) return ERR_NONE;
    r->l->score = (struct lesson_claim){score, pool_printf(r->l->pool, "%s > 0", score), .quick = true,
                                        .place = node_get(root, "score")};
    return r->l->score.check ? claim_check(r->l, &r->l->score, r->e) : ERR_MEMORY;
}

static enum error read_rest(struct lesson_reader *r, const struct lesson_raw *raw, const struct node *root) {
    struct lesson *l = r->l;
    TRY(lesson_build(l));
    TRY(read_list(r, root, "steps", raw->steps, read_step));
    if (raw->look) TRY(read_list(r, root, "look", raw->look, read_look));
    TRY(read_list(r, root, "claims", raw->claims, read_claim));
    if (config_errors_count(r->e)) return ERR_CONFIG;
    for (int i = 0; i < l->nclaims; i++) TRY(config_go_on(claim_check(l, &l->claim[i], r->e)));
    return config_go_on(read_score(r, raw->score, root));
}

static enum error lesson_open_part(const char *folder, bool head, struct lesson *out, char **report) {
    struct lesson_reader r = {.l = out};
    struct lesson_raw raw;
    struct node *root;
    *report = NULL;
    TRY(pool_create(&out->pool));
    TRY(config_errors_create(&r.e));
    out->folder = pool_printf(out->pool, "%s", folder);
    enum error err = out->folder ? read_head(&r, &raw, &root) : ERR_MEMORY;
    if (err == ERR_NONE && !head) err = read_rest(&r, &raw, root);
    if (err == ERR_NONE && config_errors_count(r.e)) err = ERR_CONFIG;
    if (err == ERR_CONFIG && config_errors_count(r.e)) {
        *report = config_errors_text(r.e, out->pool);
        if (*report) (void)FAIL(ERR_CONFIG, "%.*s", (int)strcspn(*report, "\n"), *report);
    }
    config_errors_free(r.e);
    return err;
}

enum error lesson_open(const char *folder, bool quick, struct lesson *out, char **report) {
    *out = (struct lesson){.quick = quick};
    return lesson_open_part(folder, false, out, report);
}

enum error lesson_open_head(const char *folder, struct lesson *out, char **report) {
    *out = (struct lesson){0};
    return lesson_open_part(folder, true, out, report);
}

void lesson_close(struct lesson *l) {
    for (int i = 0; i < l->nsteps; i++) {
        if (l->step[i].experiment) experiment_close(l->step[i].experiment);
        free(l->step[i].experiment);
    }
    pool_free(l->pool);
    *l = (struct lesson){0};
}

int lesson_step_named(const struct lesson *l, const char *name, int n) {
    for (int i = 0; i < l->nsteps; i++)
        if (l->step[i].name && strlen(l->step[i].name) == (size_t)n && !memcmp(l->step[i].name, name, (size_t)n))
            return i;
    return -1;
}

/* ---- what it needs ---- */

static int64_t lesson_gpus_here(void) {
    const struct device_ops *cuda = device_find("cuda");
    int n = 0;
    return cuda && cuda->units && cuda->units(&n) == ERR_NONE ? n : 0;
}

static int64_t lesson_nodes_here(void) {
    static const char *const names[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"};
    int64_t n = 1;
    for (int i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);
        if (text && text_int(text, &n)) return n;
    }
    return 1;
}

static enum error lesson_has_module(const struct lesson *l) {
    char *line = pool_printf(l->pool, "import %s", l->python);
    const struct process p = {"python3", (const char *const[]){"-c", line, NULL}, .out = "/dev/null",
                              .err = "/dev/null"};
    int code = 0;
    if (!line) return ERR_MEMORY;
    if (process_run(&p, l->pool, &code) == ERR_NONE && code == 0) return ERR_NONE;
    return FAIL(ERR_DEVICE,
                "this lab needs the Python module %s, which python3 does not find\n"
                "docs/python.md says how to install it; a virtual environment has to be active",
                l->python);
}

enum error lesson_needs(const struct lesson *l) {
    int64_t gpus = l->gpus ? lesson_gpus_here() : 0, nodes = l->nodes ? lesson_nodes_here() : 0;
    if (gpus < l->gpus)
        return FAIL(ERR_DEVICE,
                    "this lab needs %lld GPUs, and here %s %lld\n'engine doctor cuda' reports what is missing",
                    (long long)l->gpus, gpus == 1 ? "is" : "are", (long long)gpus);
    if (nodes < l->nodes)
        return FAIL(ERR_DEVICE,
                    "this lab needs %lld hosts, and this is %lld\nstart it in an allocation of "
                    "Slurm, or follow its README by hand",
                    (long long)l->nodes, (long long)nodes);
    return l->python ? lesson_has_module(l) : ERR_NONE;
}
