#include "cli/use/predict.h"

#include "engine/base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- labels ---- */

/* The index of the largest of y[n] that is below y[last], or equal to it and after 'last'; 'last' -1: of all. */
static int64_t predict_next_best(const float *y, int64_t n, int64_t last) {
    int64_t best = -1;
    for (int64_t k = 0; k < n; k++) {
        bool later = last < 0 || y[k] < y[last] || (y[k] == y[last] && k > last);
        if (later && (best < 0 || y[k] > y[best])) best = k;
    }
    return best;
}

/* The name of a class, or the text of a token; NULL: it has only a number. */
static const char *predict_label_text(const struct teller *t, int64_t label, char text[9]) {
    memset(text, 0, 9);
    int n = dataset_decode(t->data, (int32_t)label, text);
    bool part = n == 1 && (unsigned char)*text >= 0x80; /* of a character: no text by itself */
    return n > 0 && !part ? text : dataset_class_name(t->data, label);
}

/* How many of a sample's outputs are printed. */
static int64_t predict_outputs_shown(const struct teller *t) {
    return t->classes && t->top < t->width ? t->top : t->width;
}

/* ---- JSON ---- */

static void predict_json_top(struct teller *t, const struct answer *a) {
    struct json *j = &t->j;
    char text[9];
    json_open(j, "top", '[');
    for (int64_t n = 0, k = -1; n < predict_outputs_shown(t) && (k = predict_next_best(a->y, t->width, k)) >= 0; n++) {
        json_open(j, NULL, '{');
        json_int(j, "label", k);
        if (predict_label_text(t, k, text)) json_string(j, "text", predict_label_text(t, k, text));
        json_real(j, t->likely ? "probability" : "output", (double)a->y[k]);
        if (t->likely) json_real(j, "logit", (double)a->raw[k]);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void predict_json_numbers(struct teller *t, const char *key, const float *y) {
    json_array(&t->j, key, k, t->width) json_real(&t->j, NULL, (double)y[k]);
}

static void predict_say_json(struct teller *t, const struct answer *a) {
    struct json *j = &t->j;
    json_open(j, NULL, '{');
    json_string(j, "input", a->input);
    json_int(j, "sample", a->sample);
    if (a->truth >= 0) json_int(j, "truth", a->truth);
    if (t->classes)
        predict_json_top(t, a);
    else
        predict_json_numbers(t, "outputs", a->y);
    if (t->classes && t->logits) predict_json_numbers(t, "logits", a->raw);
    json_close(j, '}');
}

/* ---- lines ---- */

static void predict_print_label(const struct teller *t, int64_t label) {
    char memory[9], shown[256];
    const char *text = predict_label_text(t, label, memory);
    fprintf(t->out, "%lld", (long long)label);
    if (!text) return;
    snprintf(shown, sizeof shown, "%s", *text == '\n' ? "\\n" : text);
    fprintf(t->out, " '%s'", text_defuse(shown, ""));
}

static void predict_print_top(const struct teller *t, const struct answer *a) {
    for (int64_t m = 0, k = -1; m < predict_outputs_shown(t) && (k = predict_next_best(a->y, t->width, k)) >= 0; m++) {
        fputs(m ? "  |  " : " ", t->out);
        predict_print_label(t, k);
        fprintf(t->out, t->likely ? " %.2f %%" : " %.4g", (double)a->y[k] * (t->likely ? 100 : 1));
    }
}

static void predict_say_text(const struct teller *t, const struct answer *a) {
    const char *colon = strncmp(a->input, "val:", 4) && strncmp(a->input, "train:", 6) ? NULL : strchr(a->input, ':');
    char source[4096];
    snprintf(source, sizeof source, "%.*s", colon ? (int)(colon - a->input) : (int)strlen(a->input), a->input);
    fprintf(t->out, "%s:%lld ", text_defuse(source, ""), (long long)a->sample);
    if (t->classes && !t->logits) predict_print_top(t, a);
    for (int64_t k = 0; k < t->width && (!t->classes || t->logits); k++)
        fprintf(t->out, t->classes ? " %.6g" : " %.9g", (double)a->raw[k]);
    if (a->truth >= 0) {
        fputs("   (is ", t->out);
        predict_print_label(t, a->truth);
        fprintf(t->out, "%s)", a->truth == predict_next_best(a->y, t->width, -1) ? "" : ": wrong");
    }
    fputc('\n', t->out);
}

/* ---- CSV ---- */

/* Writes a cell of CSV: in quotes where it needs them, without what a terminal would obey. */
static void predict_csv_text(FILE *f, const char *before, const char *given) {
    char *copy = strdup(given);
    const char *text = copy ? text_defuse(copy, "\t\r\n") : "?";
    bool quoted = text[strcspn(text, ",\"\r\n")] || *text == ' ';
    fprintf(f, "%s%s", quoted ? "\"" : "", before);
    for (; *text; text++) fprintf(f, *text == '"' ? "\"\"" : "%c", *text);
    if (quoted) fputc('"', f);
    free(copy);
}

static void predict_csv_label(const struct teller *t, const char *before, int64_t label) {
    char memory[9];
    const char *text = predict_label_text(t, label, memory);
    if (text)
        predict_csv_text(t->out, before, text);
    else
        fprintf(t->out, "%s%lld", before, (long long)label);
}

static void predict_csv_header(const struct teller *t) {
    fputs(t->truths ? "input,sample,truth" : "input,sample", t->out);
    const char *value = t->likely ? "confidence" : "output";
    for (int64_t k = 0; k < predict_outputs_shown(t) && t->classes; k++) {
        if (k == 0) fprintf(t->out, ",class,%s", value);
        if (k > 0) fprintf(t->out, ",class%lld,%s%lld", (long long)k + 1, value, (long long)k + 1);
    }
    for (int64_t k = 0; k < t->width && t->classes && t->logits; k++) {
        fputc(',', t->out);
        predict_csv_label(t, "logit:", k);
    }
    const char *target = t->data->targets == 1 ? dataset_column_name(t->data, shape_count(&t->data->shape)) : NULL;
    if (target) fputc(',', t->out), predict_csv_text(t->out, "", target);
    for (int64_t k = 0; k < t->width && !t->classes && !target; k++) fprintf(t->out, ",output%lld", (long long)k);
    fputc('\n', t->out);
}

static void predict_say_csv(const struct teller *t, const struct answer *a) {
    predict_csv_text(t->out, "", a->input);
    fprintf(t->out, ",%lld", (long long)a->sample);
    if (t->truths) fputc(',', t->out);
    if (t->truths && a->truth >= 0) predict_csv_label(t, "", a->truth);
    for (int64_t m = 0, k = -1;
         t->classes && m < predict_outputs_shown(t) && (k = predict_next_best(a->y, t->width, k)) >= 0; m++) {
        fputc(',', t->out);
        predict_csv_label(t, "", k);
        fprintf(t->out, ",%.6g", (double)a->y[k]);
    }
    for (int64_t k = 0; k < t->width && (!t->classes || t->logits); k++) fprintf(t->out, ",%.9g", (double)a->raw[k]);
    fputc('\n', t->out);
}

/* ---- all ---- */

void teller_open(struct teller *t) {
    if (t->form == PREDICT_JSON) json_open(&t->j, NULL, '[');
    if (t->form == PREDICT_CSV) predict_csv_header(t);
}

void teller_say(struct teller *t, const struct answer *a) {
    if (t->form == PREDICT_JSON)
        predict_say_json(t, a);
    else if (t->form == PREDICT_CSV)
        predict_say_csv(t, a);
    else
        predict_say_text(t, a);
}

enum error teller_close(struct teller *t) {
    if (t->form != PREDICT_JSON) return ERR_NONE;
    json_close(&t->j, ']');
    TRY(json_done(&t->j));
    fprintf(t->out, "%s\n", t->j.text);
    return ERR_NONE;
}
