/* A solution of lab 29, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

enum { RIGHT, THE_REST_STAYS, PAST_THE_END, EACH_ALONE, BY_BYTES, FORGETS_READY };
#ifndef WRONG
#define WRONG RIGHT
#endif
enum { MOST = 1000 };

static void buckets(const struct engine_backward *b, uint8_t *ends) {
    double lane[MOST + 1] = {0};
    int before[MOST + 1] = {0}, n = b->layers;
    for (int end = 1; end <= n; end++) {
        double bytes = 0;
        for (int begin = end - 1; begin >= 0; begin--) {
            double at = lane[begin] > b->ready[end - 1] || WRONG == FORGETS_READY ? lane[begin] : b->ready[end - 1];
            bytes += b->bytes[begin];
            at += b->alpha + b->beta * bytes;
            if (begin < end - 1 && at >= lane[end]) continue;
            lane[end] = at, before[end] = begin;
        }
    }
    if (WRONG == EACH_ALONE)
        for (int i = 0; i < n; i++) ends[i] = 1;
    if (WRONG == BY_BYTES) {
        double bytes = 0;
        for (int i = 0; i < n; i++)
            if ((bytes += b->bytes[i]) >= 1e6 || i == n - 1) ends[i] = 1, bytes = 0;
    }
    for (int end = n; end > 0 && WRONG != EACH_ALONE && WRONG != BY_BYTES; end = before[end]) ends[end - 1] = 1;
    if (WRONG == THE_REST_STAYS && n > 3) ends[n - 1] = 0;
    if (WRONG == PAST_THE_END) ends[n] = 1;
}

static const struct engine_schedule schedule = {.buckets = buckets};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .schedule = &schedule};
