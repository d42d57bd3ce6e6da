/* The result of a lab, for people and programs. */
#include "lab/lesson/run.h"

#include "engine/base/text.h"
#include "engine/base/version.h"

static void lesson_print_claims(const struct lesson *l, const struct lesson_result *r, FILE *f) {
    static const char *const words[] = {"  ?", " NO", "yes"};
    for (int i = 0; i < l->nclaims; i++) {
        const struct claim_result *c = &r->claim[i];
        bool open = l->quick && !l->claim[i].quick;
        fprintf(f, "%s  %s\n     %s\n", open ? "  -" : words[c->holds + 1], l->claim[i].text, c->numbers);
        if (open || c->holds == 1) continue;
        fprintf(f, "     wanted: %s\n", l->claim[i].check);
        if (l->claim[i].timed)
            fputs("     The claim is about time: on a busy machine it may fail, so run the lab on a quiet one.\n", f);
    }
}

void lesson_print(const struct lesson *l, const struct lesson_result *r, FILE *f) {
    char took[32];
    if (l->nlooks) fputs("\nLook at:\n", f);
    for (int i = 0; i < l->nlooks; i++) fprintf(f, "  - %s\n", l->look[i]);
    fputs("\nExpected results:\n", f);
    lesson_print_claims(l, r, f);
    fprintf(f, "\n%d of %d hold", r->hold, r->hold + r->broken);
    if (r->open) fprintf(f, ", %d not judged in quick form", r->open);
    fprintf(f, "; %s\n", text_of_seconds(r->seconds, took));
    if (l->score.check)
        fprintf(f, "score %s: %.4g (%s is better)\n", l->score.text, r->score, l->score_rises ? "more" : "less");
    for (int i = 0; i < l->nsteps; i++)
        if (r->report[i]) fprintf(f, "report %s\n", r->report[i]);
    fprintf(f, "wrote %s/claims.json\n", r->runs);
}

static void lesson_put_steps(const struct lesson *l, const struct lesson_result *r, struct json *j) {
    json_array(j, "steps", i, l->nsteps)
        json_object(j, NULL, JSON_TEXT("name", l->step[i].name), JSON_TEXT("command", r->command[i]),
                    JSON_INT("exit", r->outcome[i].exit), JSON_REAL("seconds", r->outcome[i].seconds),
                    JSON_TEXT("report", r->report[i]));
}

enum error lesson_json(const struct lesson *l, const struct lesson_result *r, struct json *j) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("title", l->title), JSON_TEXT("folder", l->folder), JSON_BOOL("quick", l->quick),
             JSON_REAL("seconds", r->seconds));
    lesson_put_steps(l, r, j);
    json_array(j, "claims", i, l->nclaims) {
        const struct claim_result *c = &r->claim[i];
        json_open(j, NULL, '{');
        json_put(j, JSON_TEXT("text", l->claim[i].text), JSON_TEXT("check", l->claim[i].check));
        if (l->quick && !l->claim[i].quick)
            json_string(j, "holds", NULL);
        else
            json_bool(j, "holds", c->holds == 1);
        json_put(j, JSON_BOOL("timed", l->claim[i].timed), JSON_TEXT("numbers", c->numbers));
        json_close(j, '}');
    }
    json_bool(j, "all_hold", r->broken == 0);
    json_object(j, "made_by", JSON_TEXT("engine", ENGINE_VERSION), JSON_TEXT("program_sha256", r->program),
                JSON_TEXT("files_sha256", r->files));
    if (l->score.check)
        json_object(j, "score", JSON_TEXT("of", l->score.text), JSON_REAL("value", r->score),
                    JSON_BOOL("more_is_better", l->score_rises));
    json_close(j, '}');
    return json_done(j);
}
