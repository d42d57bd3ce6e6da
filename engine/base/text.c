/* Numbers with units, nearest names, and figures for people. */
#include "engine/base/text.h"

#include "engine/base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool text_ends(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

/* ---- numbers ---- */

/* Digits from s on: the first character that is none. Leading zeros are refused (NULL): 010 is ten
 * to some and eight to others. */
static const char *skip_whole(const char *s) {
    if (s[0] == '0' && isdigit((unsigned char)s[1])) return NULL;
    while (isdigit((unsigned char)*s)) s++;
    return s;
}

/* As skip_whole for [-]digits[.digits][e[+-]digits] with at least one digit before the exponent. */
static const char *skip_real(const char *s) {
    if (*s == '-') s++;
    const char *whole = s, *end = skip_whole(s);
    if (!end) return NULL;
    size_t digits = (size_t)(end - whole);
    if (*end == '.') {
        size_t fraction = strspn(end + 1, "0123456789");
        digits += fraction;
        end += 1 + fraction;
    }
    if (digits == 0) return NULL;
    if (*end == 'e' || *end == 'E') {
        const char *exponent = end + 1 + (end[1] == '+' || end[1] == '-');
        size_t n = strspn(exponent, "0123456789");
        if (n > 0) end = exponent + n;
    }
    return end;
}

locale_t text_plain_numbers(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

bool text_int(const char *s, int64_t *out) {
    const char *digits = s + (*s == '-');
    const char *end = skip_whole(digits);
    if (!end || end == digits || *end) return false;
    errno = 0;
    long long value = strtoll(s, NULL, 10);
    if (errno == ERANGE) return false;
    *out = value;
    return true;
}

/* The number that s begins with; *end is what follows it. */
static bool leading_real(const char *s, double *out, const char **end) {
    *end = skip_real(s);
    if (!*end) return false;
    *out = strtod(s, NULL);
    return isfinite(*out);
}

bool text_real(const char *s, double *out) {
    const char *end;
    double value;
    if (!leading_real(s, &value, &end) || *end) return false;
    *out = value;
    return true;
}

bool text_bytes(const char *s, int64_t *out) {
    const char *end = skip_whole(s);
    if (!end || end == s) return false;
    errno = 0;
    long long value = strtoll(s, NULL, 10);
    if (errno == ERANGE) return false;
    static const char prefixes[] = "KMG";
    const char *prefix = *end ? strchr(prefixes, *end) : NULL;
    int shift = 0;
    if (prefix) {
        shift = 10 * (int)(prefix - prefixes + 1);
        end += 1 + (end[1] == 'i');
    }
    if (*end == 'B') end++;
    if (*end || value > INT64_MAX >> shift) return false;
    *out = (int64_t)value << shift;
    return true;
}

struct unit {
    const char *name;
    double of; /* in the base unit */
};

/* A number that is not negative and one of the units. */
static bool with_unit(const char *s, const struct unit *units, size_t n, double *out) {
    const char *end;
    double value;
    if (!leading_real(s, &value, &end) || value < 0) return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(end, units[i].name) != 0) continue;
        value *= units[i].of;
        if (!isfinite(value)) return false;
        *out = value;
        return true;
    }
    return false;
}

bool text_seconds(const char *s, double *out) {
    static const struct unit units[] = {{"", 1},   {"s", 1},    {"ms", 1e-3}, {"us", 1e-6},
                                        {"m", 60}, {"min", 60}, {"h", 3600}};
    return with_unit(s, units, sizeof units / sizeof *units, out);
}

bool text_rate(const char *s, double *out) {
    static const struct unit units[] = {
        {"", 1},       {"B", 1},        {"KB", 1e3},     {"MB", 1e6},       {"GB", 1e9},      {"bit", .125},
        {"Kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"B/s", 1},        {"KB/s", 1e3},    {"MB/s", 1e6},
        {"GB/s", 1e9}, {"bit/s", .125}, {"Kbit/s", 125}, {"Mbit/s", 125e3}, {"Gbit/s", 125e6}};
    return with_unit(s, units, sizeof units / sizeof *units, out);
}

/* ---- names ---- */

enum { NAME_MAX_LENGTH = 64 }; /* longer ones are near to nothing */

static int least_of_three(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b, upper and lower case being the
 * same: the classic table, of which three rows are kept because a swap looks two rows back. */
static int edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    int rows[3][NAME_MAX_LENGTH + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= nb; j++) last[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            now[j] = least_of_three(last[j] + 1, now[j - 1] + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]) &&
                before[j - 2] + 1 < now[j])
                now[j] = before[j - 2] + 1;
        }
        int *free_row = before;
        before = last, last = now, now = free_row;
    }
    return last[nb];
}

const char *text_nearest(const char *name, const char *const *names, int n) {
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX_LENGTH) return NULL;
    int best = (int)(length + 2) / 3 + 1; /* a third of the length, rounded up, is still near */
    size_t best_gap = 0;
    const char *nearest = NULL, *longer = NULL;
    int begin = 0;
    for (int i = 0; i < n && length > 2; i++)
        if (!strncasecmp(names[i], name, length)) longer = names[i], begin++;
    if (begin == 1) return longer;
    for (int i = 0; i < n; i++) {
        size_t other = strlen(names[i]), gap = other > length ? other - length : length - other;
        if (other > NAME_MAX_LENGTH) continue;
        int d = edit_distance(name, length, names[i], other);
        if ((size_t)d >= length || d > best || (d == best && gap >= best_gap)) continue;
        best = d, best_gap = gap, nearest = names[i]; /* of equals, the one of like length */
    }
    return nearest;
}

/* ---- characters ---- */

size_t text_utf8(const char *text, size_t n) {
    struct utf8 u = {0};
    bool done = false;
    size_t k = 0;
    if ((unsigned char)*text < 0x80) return 1;
    while (!done && k < n)
        if (!utf8_feed(&u, (unsigned char)text[k++], &done)) return 0;
    return done ? k : 0;
}

int text_columns(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

char *text_defuse(char *text, const char *spared) {
    for (char *p = text; *p;) {
        unsigned char c = (unsigned char)*p;
        size_t step = text_utf8(p, strlen(p));
        bool control = (c < 0x20 || c == 0x7f) && !strchr(spared, *p);
        bool high = step == 2 && c == 0xC2 && (unsigned char)p[1] < 0xA0;
        if (step == 0 || control) *p = '?';
        if (high) p[0] = p[1] = '?';
        p += step ? step : 1;
    }
    return text;
}

/* ---- for people ---- */

char *text_of_bytes(double bytes, char out[32]) {
    static const char *const units[] = {"KB", "MB", "GB", "TB"};
    if (!(fabs(bytes) >= 1024)) {
        snprintf(out, 32, "%.0f B", bytes);
        return out;
    }
    size_t unit = 0;
    /* 1023.95 KB would print as 1024.0 KB: go on to the next unit from there. */
    for (bytes /= 1024; fabs(bytes) >= 1023.95 && unit < 3; bytes /= 1024) unit++;
    snprintf(out, 32, fabs(bytes) < 1e6 ? "%.1f %s" : "%.3g %s", bytes, units[unit]);
    return out;
}

char *text_of_count(int64_t n, char out[32]) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)n);
    char *to = out;
    for (const char *from = digits; *from; from++) {
        size_t left = strlen(from);
        if (left % 3 == 0 && from > digits && from[-1] != '-') *to++ = ',';
        *to++ = *from;
    }
    *to = '\0';
    return out;
}

char *text_of_seconds(double s, char out[32]) {
    if (!isfinite(s) || fabs(s) > 1e9)
        snprintf(out, 32, "?");
    else if (fabs(s) < 1e-3)
        snprintf(out, 32, "%.0f us", s * 1e6);
    else if (fabs(s) < 1)
        snprintf(out, 32, "%.0f ms", s * 1e3);
    else if (fabs(s) < 59.95)
        snprintf(out, 32, "%.1f s", s);
    else {
        long long whole = llround(fabs(s));
        snprintf(out, 32, "%s%lld:%02lld:%02lld", s < 0 ? "-" : "", whole / 3600, whole / 60 % 60, whole % 60);
    }
    return out;
}

char *text_of_rate(double bytes_per_s, char out[32]) {
    double mbits = 8e-6 * bytes_per_s;
    bool large = mbits >= 999.5;
    snprintf(out, 32, "%.3g %s", large ? mbits * 1e-3 : mbits, large ? "Gbit/s" : "Mbit/s");
    return out;
}

void text_of_numbers(const int *number, int count, char *out, size_t n) {
    enum { RANGE = 4, MORE = 32 }; /* MORE: room for a range and ", ..." */
    size_t at = 0;
    *out = '\0';
    for (int i = 0, end; i < count; i = end) {
        const char *comma = i ? ", " : "";
        for (end = i + 1; end < count && number[end] == number[end - 1] + 1;) end++;
        if (at + MORE > n) {
            snprintf(out + at, n - at, "%s...", comma);
            return;
        }
        if (end - i < RANGE) end = i + 1;
        if (end - i > 1)
            at += (size_t)snprintf(out + at, n - at, "%s%d to %d", comma, number[i], number[end - 1]);
        else
            at += (size_t)snprintf(out + at, n - at, "%s%d", comma, number[i]);
    }
}

void text_append(char *text, size_t size, const char *fmt, ...) {
    size_t used = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + used, size - used, fmt, ap);
    va_end(ap);
}
