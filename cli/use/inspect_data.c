/* What a network knows of its data, for people. */
#include "cli/use/inspect.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

enum { ROOM = 88 };

static void inspect_print_moments(const struct preprocessing *p) {
    const struct dataset *d = &p->set.base;
    double mean[CHANNELS_MAX], std[CHANNELS_MAX];
    if (d->type == SAMPLE_TOKENS) return;
    for (int k = 0; k < p->norm.channels; k++) normalization_tell(d, &p->norm, k, &mean[k], &std[k]);
    printf("  mean       ");
    for (int k = 0; k < p->norm.channels; k++) printf(" %.9g", mean[k]);
    printf("\n  deviation  ");
    for (int k = 0; k < p->norm.channels; k++) printf(" %.9g", std[k]);
    printf("%s\n", d->type == SAMPLE_U8 ? "  (of bytes / 255)" : "");
}

/* Names between commas, on lines of ROOM bytes or a little more. */
static void inspect_print_names(const char *const *names, int64_t count) {
    size_t used = 0;
    for (int64_t k = 0; k < count; k++) {
        char name[256];
        snprintf(name, sizeof name, "%s", names[k]);
        text_defuse(name, "");
        if (used > 0 && used + strlen(name) > ROOM) {
            printf("\n              ");
            used = 0;
        }
        used += (size_t)printf("%s%s", name, k + 1 < count ? ", " : "");
    }
    printf("\n");
}

/* The first characters, as they are written in C. */
static void inspect_print_characters(const struct preprocessing *p) {
    const struct dataset *d = &p->set.base;
    size_t used = 0;
    int64_t k = 0;
    printf("\"");
    for (; k < d->classes && used < ROOM; k++) {
        char text[9] = "";
        dataset_decode(d, (int32_t)k, text);
        if (*text == '\n' || *text == '\t' || *text == '\r')
            used += (size_t)printf("\\%c", *text == '\n' ? 'n' : *text == '\t' ? 't' : 'r');
        else if (*text == '"' || *text == '\\')
            used += (size_t)printf("\\%c", *text);
        else
            used += (size_t)printf("%s", text_defuse(text, ""));
    }
    printf("\"%s\n", k < d->classes ? " ..." : "");
}

static void inspect_print_vocabulary(const struct preprocessing *p) {
    const struct dataset *d = &p->set.base;
    if (d->type != SAMPLE_TOKENS) return;
    printf("  vocabulary  %lld %s", (long long)d->classes,
           !p->text       ? "tokens, whose text is not known\n"
           : p->set.bytes ? "bytes\n"
                          : "characters: ");
    if (p->set.characters) inspect_print_characters(p);
}

void inspect_preprocessing(const struct preprocessing *p) {
    const struct dataset *d = &p->set.base;
    char shape[96], name[64];
    snprintf(name, sizeof name, "%s", d->name);
    printf("  data        '%s', samples of %s %s", text_defuse(name, ""), shape_text(&d->shape, shape),
           sample_types[d->type]);
    if (d->part > 0 && d->part < 1) printf(", the middle %.4g of a picture's shorter side", d->part);
    printf("\n");
    inspect_print_moments(p);
    if (d->classes && d->type != SAMPLE_TOKENS) printf("  classes     %lld\n", (long long)d->classes);
    if (d->targets)
        printf("  targets     %lld%s\n", (long long)d->targets, p->norm.targets ? "" : ", learned as they are");
    if (p->norm.targets)
        printf("  learned as  (value - %.9g) / %.9g%s\n", (double)p->norm.target_mean[0],
               1 / (double)p->norm.target_scale[0], p->norm.targets > 1 ? ", ..." : "");
    if (p->class_names) {
        printf("  class names ");
        inspect_print_names(p->class_names, d->classes);
    }
    if (p->column_names) {
        printf("  columns     ");
        inspect_print_names(p->column_names, shape_count(&d->shape) + 1);
    }
    inspect_print_vocabulary(p);
}
