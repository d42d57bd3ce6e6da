/* The page of what ./bootstrap gpu-test has written about a GPU: what failed, then each part beside what the cost page of
 * the same program expects of it. */
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

enum { PROOF_MOST = 16 << 20, COLUMNS = 7 };
static const struct json_limits limits = {8, 1 << 16, 1 << 14};

enum kind { FAILED, BOUNDED, OTHER, KINDS };
static const char *const titles[KINDS] = {"What failed", "Beside its bound", "All else"};

static enum kind proof_kind(const struct json_value *row) {
    const char *result = json_text(row, "result");
    if (strcmp(result, "ok") != 0 && strcmp(result, "skipped") != 0) return FAILED;
    return isfinite(json_number(row, "expected_ms")) ? BOUNDED : OTHER;
}

static void proof_row(struct report *r, const struct json_value *row, const char *cell[COLUMNS]) {
    double seconds = json_number(row, "seconds"), expected = json_number(row, "expected_ms");
    double measured = json_number(row, "measured_ms");
    cell[0] = json_text(row, "what");
    cell[1] = json_text(row, "result");
    cell[2] = json_text(row, "figure");
    if (isfinite(seconds)) cell[3] = report_ms(r, seconds);
    if (isfinite(expected)) cell[4] = report_ms(r, expected / 1e3);
    if (isfinite(measured)) cell[5] = report_ms(r, measured / 1e3);
    if (isfinite(expected) && measured > 0) cell[6] = report_say(r, "%.0f %%", 100 * expected / measured);
}

/* Makes a table of the rows of a kind, where there are any. */
static enum error proof_table(struct report *r, struct report_section *s, const struct json_value *rows, enum kind kind,
                              int *count) {
    static const char *const heads[COLUMNS] = {"part",     "result",   "what it says", "took",
                                               "at least", "measured", "share"};
    struct table *t;
    *count = 0;
    for (int i = 0; i < rows->count; i++) *count += proof_kind(&rows->children[i]) == kind;
    if (!*count) return ERR_NONE;
    TRY(report_table(r, s, titles[kind], COLUMNS, *count, heads, &t));
    t->words = 3;
    for (int i = 0, at = 1; i < rows->count; i++)
        if (proof_kind(&rows->children[i]) == kind) proof_row(r, &rows->children[i], table_row(t, at++));
    return ERR_NONE;
}

static enum error proof_section(struct report *r, const struct json_value *root, const struct json_value *rows) {
    struct report_section *s = report_section(r, "verdict", "Answer");
    int count[KINDS], skipped = 0;
    for (int kind = FAILED; kind < KINDS; kind++) TRY(proof_table(r, s, rows, (enum kind)kind, &count[kind]));
    for (int i = 0; i < rows->count; i++) skipped += !strcmp(json_text(&rows->children[i], "result"), "skipped");
    r->verdict = report_say(r, "%d parts: %d passed, %d failed, %d skipped.", rows->count,
                            rows->count - count[FAILED] - skipped, count[FAILED], skipped);
    report_paragraph(s, r->verdict);
    if (json_truth(root, "emulated"))
        report_paragraph(s, "Warning: the GPUs were emulated. This proves the script, and nothing of a real GPU.");
    if (count[BOUNDED])
        report_paragraph(s,
                         "\"At least\" is the bound of engine model summary --device for the plan that ran: the longer "
                         "of its operations and its bytes, at the rates of the data sheet. The share is the bound "
                         "divided by what was measured.");
    s->command = "./bootstrap gpu-test";
    return ERR_NONE;
}

enum error report_proof(const char *path, struct pool *pool, struct report *out) {
    const struct json_value *root;
    TRY(json_read(path, PROOF_MOST, limits, pool, &root));
    const struct json_value *rows = json_member(root, "rows", JSON_ARRAY);
    if (!rows || !rows->count || !json_member(root, "failed", JSON_NUMBER))
        return FAIL(ERR_DATA,
                    "'%s' is not what ./bootstrap gpu-test writes\ngive its gpu-NAME.json, or the directory "
                    "of a run or of an experiment",
                    path);
    memset(out, 0, sizeof *out);
    out->pool = pool, out->question = "";
    const char *gpu = json_text(root, "gpu");
    out->name = report_say(out, "%s, engine %s", *gpu ? gpu : "a GPU", json_text(root, "engine"));
    return proof_section(out, root, rows);
}
