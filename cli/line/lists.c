#include "cli/line/lists.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

bool list_word(const char **list, char word[64]) {
    size_t n = strcspn(*list, ",");
    if (!**list || n >= 64) return false;
    memcpy(word, *list, n);
    word[n] = '\0';
    *list += n + ((*list)[n] == ',');
    return true;
}

static bool list_add(int64_t n, int64_t most, int64_t out[LIST_MOST], int *count) {
    if (n < 1 || n > most || *count == LIST_MOST) return false;
    out[(*count)++] = n;
    return true;
}

/* 3..20 is 3, 4, 8, 16, 20. */
static bool list_add_range(char *word, char *dots, int64_t most, int64_t out[LIST_MOST], int *count) {
    int64_t low, high;
    *dots = '\0';
    if (!text_int(word, &low) || !text_int(dots + 2, &high) || low < 1 || low > high || high > most) return false;
    if (!list_add(low, most, out, count)) return false;
    for (int64_t n = 1; n < high; n *= 2)
        if (n > low && !list_add(n, most, out, count)) return false;
    return low == high || list_add(high, most, out, count);
}

enum error list_numbers(const char *list, bool bytes, int64_t most, int64_t out[LIST_MOST], int *count) {
    char word[64];
    *count = 0;
    while (list_word(&list, word)) {
        int64_t n;
        char *dots = bytes ? NULL : strstr(word, "..");
        bool right = dots ? list_add_range(word, dots, most, out, count)
                     : (bytes ? text_bytes(word, &n) : text_int(word, &n)) ? list_add(n, most, out, count)
                                                                           : false;
        if (!right) return ERR_USAGE;
    }
    return *count > 0 && !*list ? ERR_NONE : ERR_USAGE;
}

bool list_wire(const char *value, struct wire *out) {
    char word[64];
    double rate;
    *out = (struct wire){0, 0};
    if (!list_word(&value, word)) return false;
    if (strcmp(word, "unlimited") != 0) {
        if (!text_rate(word, &rate) || !(rate > 0)) return false;
        out->beta = 1 / rate;
    }
    if (!list_word(&value, word)) return !*value;
    return text_seconds(word, &out->alpha) && out->alpha >= 0 && !*value;
}

const char *list_wire_text(const struct wire *w, char out[64]) {
    char latency[32], rate[32] = "unlimited";
    if (w->beta > 0) text_of_rate(1 / w->beta, rate);
    snprintf(out, 64, "%s%s%s", rate, w->alpha > 0 ? " and " : "",
             w->alpha > 0 ? text_of_seconds(w->alpha, latency) : "");
    return out;
}
