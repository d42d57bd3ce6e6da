#include "lab/lesson/grade.h"

#include "engine/base/file.h"
#include "engine/train/stop.h"
#include "lab/lesson/run.h"
#include "lab/process/process.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MOST = 1 << 26, HAND_IN_MOST = 1 << 20, LOG_MOST = 1 << 24, REASON_MOST = 300 };

/* ---- the copy ---- */

static bool grade_is_handed_in(const struct lesson *key, const char *name) {
    for (int i = 0; i < key->nfiles; i++)
        if (!strcmp(key->hand_in[i], name)) return true;
    return false;
}

/* The key's files, but for those that are handed in, and for folders: what an earlier run has left. */
static enum error grade_copy_key(const struct grader *g, const struct grade *out) {
    enum error err = ERR_NONE;
    DIR *d = opendir(g->key->folder);
    if (!d) return FAIL(ERR_INPUT, "folder '%s' cannot be read", g->key->folder);
    for (struct dirent *e; err == ERR_NONE && (e = readdir(d));) {
        const char *from = pool_printf(g->pool, "%s/%s", g->key->folder, e->d_name);
        const char *to = pool_printf(g->pool, "%s/%s", out->folder, e->d_name);
        if (!from || !to)
            err = ERR_MEMORY;
        else if (!file_is_folder(from) && !grade_is_handed_in(g->key, e->d_name))
            err = lesson_copy_file(from, KEY_MOST, to, g->pool);
    }
    closedir(d);
    return err;
}

static void grade_give_reason(const struct grader *g, struct grade *out, const char *words) {
    out->reason = *words ? pool_say(g->pool, "%.*s", REASON_MOST, words) : "no memory";
}

/* The path of a file of the hand-in, which lies in its folder, whatever links lead there; NULL: out->reason says why. */
static const char *grade_find_file(const struct grader *g, const char *name, struct grade *out) {
    char *path = pool_printf(g->pool, "%s/%s", out->hand_in, name), *root = realpath(out->hand_in, NULL);
    char *real = path ? realpath(path, NULL) : NULL;
    const char *found = NULL, *words = "";
    size_t n = root ? strlen(root) : 0;
    if (!root || !file_is_folder(root))
        words = pool_say(g->pool, "there is no folder '%s'", out->hand_in);
    else if (!real)
        words = pool_say(g->pool, "it lacks %s", name);
    else if (strncmp(real, root, n) != 0 || real[n] != '/')
        words = pool_say(g->pool, "%s is a link to a place outside of its folder", name);
    else
        found = pool_strndup(g->pool, real, strlen(real));
    if (!found) grade_give_reason(g, out, words);
    free(root);
    free(real);
    return found;
}

static enum error grade_copy_hand_in(const struct grader *g, struct grade *out) {
    struct sha256 h;
    char hex[SHA256_TEXT];
    sha256_init(&h);
    for (int i = 0; i < g->key->nfiles && !out->reason; i++) {
        const char *name = g->key->hand_in[i], *path = grade_find_file(g, name, out);
        char *to = pool_printf(g->pool, "%s/%s", out->folder, name), *text;
        size_t n;
        if (!path) continue;
        if (file_read(path, HAND_IN_MOST, g->pool, &text, &n) != ERR_NONE) {
            grade_give_reason(g, out, error_message());
            continue;
        }
        sha256_update(&h, text, n);
        TRY(file_replace(to, text, n));
    }
    sha256_hex(h, hex);
    if (!out->reason) out->digest = pool_printf(g->pool, "%s", hex);
    return out->digest ? ERR_NONE : ERR_MEMORY;
}

/* ---- the run ---- */

/* The first error that the log tells, in a line: "ring.c:3:5: error: ...", "'ring.so': 1 of 2 cases are wrong: ...". */
static const char *grade_first_error(const struct grader *g, const char *log) {
    static const char sign[] = "error: ", more[] = "hint: ";
    char *text;
    size_t n;
    if (file_read(log, LOG_MOST, g->pool, &text, &n) != ERR_NONE) return "";
    char *at = strstr(text, sign);
    if (!at) return "";
    at += strlen(sign);
    char *end = at + strcspn(at, "\n");
    const char *hint = !strncmp(end, "\nhint: ", 1 + strlen(more)) ? end + 1 + strlen(more) : NULL;
    *end = '\0';
    return hint ? pool_say(g->pool, "%s: %.*s", at, (int)strcspn(hint, "\n"), hint) : at;
}

static void grade_explain_end(const struct grader *g, const struct process_end *end, const char *log,
                              struct grade *out) {
    const char *error = end->late ? "" : grade_first_error(g, log);
    const char *words = end->late ? pool_say(g->pool, "it has not ended within %g s", g->timeout)
                        : !*error ? pool_say(g->pool, "its lab has ended with exit code %d, see %s", end->code, log)
                                  : error;
    grade_give_reason(g, out, words);
}

static void grade_take_claims(const struct grader *g, const struct json_value *told, struct grade *out) {
    const struct json_value *claims = json_member(told, "claims", JSON_ARRAY);
    for (int i = 0; claims && i < claims->count; i++) {
        const struct json_value *c = &claims->children[i], *holds = json_get(c, "holds");
        if (!holds || holds->kind != JSON_BOOL) continue; /* not judged in quick form */
        out->claims++;
        out->hold += holds->truth;
        if (!holds->truth && !out->broken)
            out->broken = pool_printf(g->pool, "%s (%s)", json_text(c, "text"), json_text(c, "numbers"));
    }
    out->score = json_number(json_member(told, "score", JSON_OBJECT), "value");
    out->rises = json_truth(json_member(told, "score", JSON_OBJECT), "more_is_better");
    if (!out->claims) grade_give_reason(g, out, "its lab has judged no claim");
}

static enum error grade_run_lab(const struct grader *g, struct grade *out) {
    const char *told = pool_printf(g->pool, "%s/grade.json", out->folder);
    const char *log = pool_printf(g->pool, "%s/grade.log", out->folder);
    const char *words[] = {"lab", "run", out->folder, "--json", "--quiet", g->quick ? "--quick" : NULL, NULL};
    const struct process lab = {g->program, words, .out = told, .err = log};
    const struct json_value *root;
    struct process_end end;
    if (!told || !log) return ERR_MEMORY;
    TRY(processes_kill_left()); /* from now on they would be this one's */
    TRY(processes_run(&lab, 1, (struct process_limits){g->timeout, 10}, g->pool, &end));
    TRY(processes_kill_left());
    if (stop_signal()) return FAIL(ERR_RESULT, "stopped");
    if ((end.code == 0 || end.code == 1) && json_read(told, LOG_MOST, LESSON_CLAIMS_LIMITS, g->pool, &root) == ERR_NONE)
        grade_take_claims(g, root, out);
    else
        grade_explain_end(g, &end, log, out);
    return ERR_NONE;
}

const char *grade_name(const char *hand_in, size_t *n) {
    size_t end = strlen(hand_in);
    while (end > 1 && hand_in[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && hand_in[begin - 1] != '/') begin--;
    *n = end - begin;
    return hand_in + begin;
}

enum error grade_run(const struct grader *g, const char *hand_in, struct grade *out) {
    size_t n;
    const char *at = grade_name(hand_in, &n), *name = pool_strndup(g->pool, at, n);
    if (!name) return ERR_MEMORY;
    *out = (struct grade){.hand_in = hand_in, .name = name, .digest = "", .score = (double)NAN};
    TRY_MEMORY(out->folder = pool_printf(g->pool, "%s/%s", g->dir, out->name));
    TRY(file_make_folders(out->folder));
    TRY(grade_copy_key(g, out));
    TRY(grade_copy_hand_in(g, out));
    return out->reason ? ERR_NONE : grade_run_lab(g, out);
}

/* ---- the class ---- */

static int grade_compare(const void *a, const void *b) {
    const struct grade *x = a, *y = b;
    if (x->hold != y->hold) return y->hold - x->hold;
    if (isnan(x->score) || isnan(y->score)) return !!isnan(x->score) - !!isnan(y->score);
    double d = x->rises ? y->score - x->score : x->score - y->score;
    return d < 0 ? -1 : d > 0 ? 1 : strcmp(x->name, y->name);
}

void grades_sort(struct grade *all, int n) {
    qsort(all, (size_t)n, sizeof *all, grade_compare);
}

void grades_print(const struct grade *all, int n, FILE *f) {
    int width = 7;
    for (int i = 0; i < n; i++)
        if ((int)strlen(all[i].name) > width) width = (int)strlen(all[i].name);
    fprintf(f, "%8s %10s  %-*s  what does not hold\n", "claims", "score", width, "hand-in");
    for (int i = 0; i < n; i++) {
        const struct grade *g = &all[i];
        char hold[32] = "-", score[32] = "-";
        if (!g->reason) snprintf(hold, sizeof hold, "%d of %d", g->hold, g->claims);
        if (!isnan(g->score)) snprintf(score, sizeof score, "%.4g", g->score);
        const char *words = g->reason ? g->reason : g->broken;
        fprintf(f, "%8s %10s  %-*s%s%s\n", hold, score, words ? width : 0, g->name, words ? "  " : "",
                words ? words : "");
    }
}

enum error grades_json(const struct grader *g, const struct grade *all, int n, struct json *j) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("title", g->key->title), JSON_TEXT("key", g->key->folder), JSON_BOOL("quick", g->quick));
    json_array(j, "hand_ins", i, n)
        json_object(j, NULL, JSON_TEXT("name", all[i].name), JSON_TEXT("hand_in", all[i].hand_in),
                    JSON_TEXT("folder", all[i].folder), JSON_TEXT("sha256", *all[i].digest ? all[i].digest : NULL),
                    JSON_INT("hold", all[i].hold), JSON_INT("claims", all[i].claims), JSON_REAL("score", all[i].score),
                    JSON_TEXT("broken", all[i].broken), JSON_TEXT("reason", all[i].reason));
    json_close(j, '}');
    return json_done(j);
}
