#include "lab/advise/advise.h"

#include "engine/base/text.h"
#include "engine/settings/run_config.h"
#include "modes/share/share.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int advise_modes(void) {
    int n;
    mode_kinds(&n);
    return n;
}

const struct mode_row *advise_mode(int mode) {
    return mode_kinds(&(int){0})[mode];
}

int advise_alone(void) {
    int m = 0;
    while (advise_mode(m)->place != PLACE_ALONE) m++;
    return m;
}

double advise_rate(int i) { /* 10 Mbit/s to 100 Gbit/s, two for each power of ten */
    return 1.25e6 * pow(10, i / 2.0);
}

/* ---- one way -------------------------------------------------------------------------------- */

struct condition { /* what the answer depends on */
    struct wire port[ADVISE_MODES];
    double batches; /* of the size that is configured */
};

int64_t advise_computing(const struct advise_ask *a, const struct advise_way *w) {
    return w->devices - way_sharing(&w->way, a->config).servers;
}

static enum error try_way(const struct advise_ask *a, const struct advise_way *w, const struct condition *on,
                          struct advise_row *out) {
    int64_t computing = advise_computing(a, w);
    struct measured_step m = measured_grow(a->measured[w->measured].step, on->batches);
    struct sweep_place p = sweep_place(a->config, computing);
    p.plan.net.outside = on->port[w->mode];
    p.plan.cores = a->cores;
    if (a->fitted) p.plan.moving = 0;
    if (w->bucket) p.first = p.cap = w->bucket;
    p.strong = !a->weak;
    *out = (struct advise_row){.as = *w};
    TRY(sweep_try(&m, &w->way, &p, &out->answer));
    double samples = (double)a->config->batch.size * on->batches * (a->weak ? m.work * (double)computing : 1);
    out->rate = samples / out->answer.result.step;
    out->fits = out->answer.memory <= a->memory;
    return ERR_NONE;
}

/* The same of a way that may be impossible: layers cannot be cut into any number of stages. */
static enum error try_possible(const struct advise_ask *a, const struct advise_way *w, const struct condition *on,
                               struct advise_row *out, bool *possible) {
    enum error err = try_way(a, w, on, out);
    *possible = err == ERR_NONE;
    return err == ERR_CONFIG && way_is_staged(&w->way) ? ERR_NONE : err;
}

/* ---- which ways there are ------------------------------------------------------------------- */

enum { WAYS_MOST = 640 };
struct ways {
    const struct advise_ask *ask;
    int n;
    struct advise_way way[WAYS_MOST];
};

static void ways_add(struct ways *w, const struct advise_way *one) {
    if (w->n < WAYS_MOST) w->way[w->n++] = *one;
}

static bool advise_adds_in_ring(const struct advise_ask *a) {
    return a->config->comm.order == COMM_ORDER_RING;
}

static bool advise_known_there(const struct advise_ask *a, const struct way *w, int64_t devices) {
    const struct sweep_place p = sweep_place(a->config, devices);
    if (!scheme_is_known(w->scheme) || !way_suits(w, &p)) return false;
    return !advise_adds_in_ring(a) || algo_find(scheme_name(w->scheme))->orders[ORDER_RING];
}

/* An all-reduce by the algorithm that the engine would choose, and where 'named' by each other one. */
static void advise_add_all_reduces(struct ways *w, struct advise_way one, bool named) {
    one.way.scheme = w->ask->usual;
    ways_add(w, &one);
    for (enum scheme s = 0; s < SCHEMES && named && w->ask->usual == SCHEMES; s++) {
        one.way.scheme = s;
        if (advise_known_there(w->ask, &one.way, one.devices)) ways_add(w, &one);
    }
    one.way.scheme = SCHEME_OWN, one.way.own = w->ask->own;
    const struct sweep_place p = sweep_place(w->ask->config, one.devices);
    if (one.way.own && named && w->ask->usual == SCHEMES && way_suits(&one.way, &p)) ways_add(w, &one);
}

/* A way with one server apart, or, where it counts them, with up to half of the devices. */
static void advise_add_servers(struct ways *w, struct advise_way one) {
    bool counts = one.way.of->counts;
    for (int servers = 1; servers <= (counts ? one.devices / 2 : 1); servers *= 2) {
        one.way.count = counts ? servers : 0;
        ways_add(w, &one);
    }
}

/* As many stages as devices, or a half of these, or a half of that, ..., in copies that share the batch. */
static void advise_add_stages(struct ways *w, struct advise_way one) {
    one.way.scheme = w->ask->usual;
    for (int stages = (int)one.devices; stages > 1; stages = stages % 2 ? 0 : stages / 2) {
        one.way.count = stages;
        ways_add(w, &one);
    }
}

/* The ways of a mode. A dedicated server leaves the others something to share. In ring order nothing is cut into
 * slices or stages. Some ways cut the arena in another way than buckets, and stages hardly send these. */
static void advise_add_mode(struct ways *w, struct advise_way one, int mode, bool named) {
    const struct mode_row *row = advise_mode(mode);
    one.mode = mode;
    for (const struct mode_way *way = row->ways; way->name; way++) {
        one.way = (struct way){row, way, SCHEMES, 0};
        bool staged = way_is_staged(&one.way);
        if (one.bucket && (staged || way_sharing(&one.way, w->ask->config).cut.cap)) continue;
        bool cut = way->share->plan.update == UPDATE_BY_OWNERS;
        if (run_cuts_matrices(w->ask->config, &way->share->plan)) continue;
        if (!way->order || one.devices < way->servers + (one.devices > 1 ? 2 : 1) ||
            (cut && advise_adds_in_ring(w->ask)))
            continue;
        if (staged)
            advise_add_stages(w, one);
        else if (way_reduces(&one.way))
            advise_add_all_reduces(w, one, named);
        else
            advise_add_servers(w, one);
    }
}

/* On one device there is nothing to share; on several each mode but that one. */
static void advise_add_modes(struct ways *w, struct advise_way one, bool named) {
    for (int m = 0; m < advise_modes(); m++)
        if ((m == advise_alone()) == (one.devices == 1) && !w->ask->without[m]) advise_add_mode(w, one, m, named);
}

/* Sizes of buckets that cut these gradients into more than one, and not into thousands. */
static void advise_add_cut(struct ways *w, struct advise_way one) {
    const struct bucket_config *b = &w->ask->config->ddp.bucket;
    double bytes = (double)w->ask->measured[0].step->model->arena_floats * sizeof(float);
    for (int64_t size = 64 << 10; (double)size < bytes; size *= 4)
        if (size != b->cap && bytes / (double)size < 256) {
            one.bucket = size;
            for (int m = 0; m < advise_modes(); m++)
                if (advise_mode(m)->place == PLACE_PROCESSES && !w->ask->without[m]) advise_add_mode(w, one, m, true);
        }
}

static void advise_add_all(struct ways *w, int64_t devices) {
    struct advise_way one = {.devices = devices};
    for (int i = 0; i < w->ask->nmeasured; i++) {
        one.measured = i;
        advise_add_modes(w, one, true);
        if (devices > 1) advise_add_cut(w, one);
    }
}

/* ---- better and simpler --------------------------------------------------------------------- */

bool advise_simpler(const struct advise_row *a, const struct advise_row *b) {
    const struct advise_way *x = &a->as, *y = &b->as;
    if (x->devices != y->devices) return x->devices < y->devices;
    if (!x->measured != !y->measured) return !x->measured;
    if (x->way.of->order != y->way.of->order) return x->way.of->order < y->way.of->order;
    if (x->way.count != y->way.count) return x->way.count < y->way.count;
    bool named[2] = {x->way.scheme != SCHEMES, y->way.scheme != SCHEMES};
    if (named[0] != named[1]) return !named[0];
    if (!x->bucket != !y->bucket) return !x->bucket;
    return a->rate > b->rate;
}

struct filter { /* 0 and -1: any */
    int64_t devices;
    int mode, not_mode, measured;
    bool unfit; /* those that do not fit; else those that do */
};
static const struct filter any = {0, -1, -1, -1, false};

/* Whether a is faster than b; if they are equally fast, the simpler one is. */
static bool row_beats(const struct advise_row *a, const struct advise_row *b) {
    double more = a->rate / b->rate - 1;
    return fabs(more) > 1e-9 ? more > 0 : advise_simpler(a, b);
}

static int advise_fastest_of(const struct advice *a, struct filter f) {
    int best = -1;
    for (int i = 0; i < a->nrows; i++) {
        const struct advise_way *w = &a->row[i].as;
        bool right = (!f.devices || w->devices == f.devices) && (f.mode < 0 || w->mode == f.mode) &&
                     w->mode != f.not_mode && (f.measured < 0 || w->measured == f.measured) &&
                     a->row[i].fits != f.unfit;
        if (right && (best < 0 || row_beats(&a->row[i], &a->row[best]))) best = i;
    }
    return best;
}

/* The simplest row whose rate is near the fastest row's. devices, measured: those that count (0, -1: all); one device alone
 * always does. */
static int advise_simplest_near(const struct advice *a, int fastest, int64_t devices, int measured) {
    int best = fastest;
    for (int i = 0; i < a->nrows && fastest >= 0; i++) {
        const struct advise_row *r = &a->row[i];
        if ((devices && r->as.devices != devices && r->as.devices != 1) ||
            (measured >= 0 && r->as.measured != measured))
            continue;
        if (r->fits && r->rate * ADVISE_NEAR >= a->row[fastest].rate && advise_simpler(r, &a->row[best])) best = i;
    }
    return best;
}

/* ---- where it turns over -------------------------------------------------------------------- */

/* The fastest mode on this many devices, or on one of them, with buckets and algorithm as configured. Where two are as
 * fast the first one counts. */
static enum error advise_winner(const struct advise_ask *a, int64_t devices, const struct condition *on, int *out) {
    struct ways w = {.ask = a};
    double best = 0;
    advise_add_modes(&w, (struct advise_way){.devices = 1}, false);
    if (devices > 1) advise_add_modes(&w, (struct advise_way){.devices = devices}, false);
    *out = ADVISE_NONE;
    for (int i = 0; i < w.n; i++) {
        struct advise_row r;
        bool possible;
        TRY(try_possible(a, &w.way[i], on, &r, &possible));
        if (possible && r.fits && r.rate > best * (1 + 1e-9)) best = r.rate, *out = w.way[i].mode;
    }
    return ERR_NONE;
}

static struct condition condition_at_rate(const struct advise_ask *a, double rate) {
    struct condition on = {.batches = 1};
    for (int m = 0; m < ADVISE_MODES; m++) on.port[m] = (struct wire){a->port[m].alpha, 1 / rate};
    return on;
}

static struct condition condition_at_batch(const struct advise_ask *a, double batch) {
    struct condition on = {.batches = batch / (double)a->config->batch.size};
    memcpy(on.port, a->port, sizeof on.port);
    return on;
}

struct search {
    const struct advise_ask *ask;
    int64_t devices;
    struct condition (*at)(const struct advise_ask *a, double x);
};

/* Between low and high, where the fastest modes are 'from' and another, or from where on nothing fits. */
static enum error advise_find_turn(const struct search *s, double low, double high, int from,
                                   struct advise_turns *out) {
    enum { HALVINGS = 12 };
    int m, to = from;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = sqrt(low * high);
        const struct condition on = s->at(s->ask, middle);
        TRY(advise_winner(s->ask, s->devices, &on, &m));
        *(m == from ? &low : &high) = middle;
    }
    const struct condition on = s->at(s->ask, high);
    TRY(advise_winner(s->ask, s->devices, &on, &to));
    if (out->n < ADVISE_TURNS && to != from && to != ADVISE_NONE)
        out->turn[out->n++] = (struct advise_turn){sqrt(low * high), from, to};
    return ERR_NONE;
}

/* Finds where, along x (n) conditions, another mode becomes the best. */
static enum error advise_find_turns(const struct search *s, const double *x, int n, struct advise_turns *out) {
    int before = advise_alone(), now;
    for (int i = 0; i < n; i++) {
        const struct condition on = s->at(s->ask, x[i]);
        TRY(advise_winner(s->ask, s->devices, &on, &now));
        if (i && now != before && before != ADVISE_NONE) TRY(advise_find_turn(s, x[i - 1], x[i], before, out));
        before = now;
    }
    return ERR_NONE;
}

static enum error advise_draw_map(struct advice *a) {
    for (int r = 0; r < ADVISE_RATES; r++) {
        const struct condition on = condition_at_rate(a->ask, advise_rate(r));
        for (int d = 0; d < a->ask->ndevices; d++) TRY(advise_winner(a->ask, a->ask->devices[d], &on, &a->map[r][d]));
    }
    return ERR_NONE;
}

/* On as many devices as the fastest way takes; where that is one, on the most. Batches from a 64th to 256 times of what
 * is configured, where each device has a sample. */
static enum error advise_turn_over(struct advice *a) {
    const struct advise_ask *ask = a->ask;
    double rate[ADVISE_RATES], batch[16], size = (double)ask->config->batch.size;
    int n = 0;
    a->turned = a->row[a->configured[0]].as.devices;
    if (a->turned == 1) a->turned = ask->devices[ask->ndevices - 1];
    for (int i = 0; i < ADVISE_RATES; i++) rate[i] = advise_rate(i);
    for (int k = -6; k <= 8; k++)
        if (size * exp2(k) >= (ask->weak ? 1 : (double)a->turned)) batch[n++] = size * exp2(k);
    for (int d = 1; d < ask->ndevices; d++) {
        int before = a->at[d - 1].fastest, now = a->at[d].fastest;
        if (before < 0 || now < 0 || a->row[before].as.mode == a->row[now].as.mode) continue;
        struct advise_turns *t = &a->devices;
        if (t->n < ADVISE_TURNS)
            t->turn[t->n++] =
                (struct advise_turn){(double)ask->devices[d], a->row[before].as.mode, a->row[now].as.mode};
    }
    TRY(advise_find_turns(&(struct search){ask, a->turned, condition_at_rate}, rate, ADVISE_RATES, &a->rates));
    return advise_find_turns(&(struct search){ask, a->turned, condition_at_batch}, batch, n, &a->batches);
}

/* ---- what limits ---------------------------------------------------------------------------- */

static enum error advise_find_limits(struct advice *a) {
    const struct advise_row *r = &a->row[a->fastest];
    struct condition wide = condition_at_batch(a->ask, (double)a->ask->config->batch.size), soon = wide, best = wide;
    struct advise_row without;
    double step = r->answer.result.step;
    for (int m = 0; m < ADVISE_MODES; m++)
        wide.port[m].beta = 0, soon.port[m].alpha = 0, best.port[m] = (struct wire){0, 0};
    a->limits.compute = r->answer.result.compute / step;
    TRY(try_way(a->ask, &r->as, &wide, &without));
    a->limits.bandwidth = fmax(0, 1 - without.answer.result.step / step);
    TRY(try_way(a->ask, &r->as, &soon, &without));
    a->limits.latency = fmax(0, 1 - without.answer.result.step / step);
    if (!way_is_staged(&r->as.way)) return ERR_NONE;
    TRY(try_way(a->ask, &r->as, &best, &without));
    a->limits.bubble = without.answer.result.exposed / step;
    return ERR_NONE;
}

/* ---- all ------------------------------------------------------------------------------------ */

struct left_out { /* a mode whose layers cannot be cut into stages on some numbers of devices */
    const char *mode;
    char on[128], why[512]; /* these numbers; why, on the first */
};

static enum error advise_try_on(struct advice *a, const struct condition *on, int64_t devices, struct left_out *out) {
    struct ways w = {.ask = a->ask};
    bool found = false;
    const char *refused = NULL;
    advise_add_all(&w, devices);
    for (int i = 0; i < w.n; i++) {
        bool possible;
        TRY(try_possible(a->ask, &w.way[i], on, &a->row[a->nrows], &possible));
        a->nrows += possible;
        found |= possible && way_is_staged(&w.way[i].way);
        if (possible) continue;
        refused = w.way[i].way.mode->name;
        if (!out->mode) snprintf(out->why, sizeof out->why, "%s", error_message());
    }
    if (!refused || found) return ERR_NONE;
    size_t n = strlen(out->on);
    snprintf(out->on + n, sizeof out->on - n, "%s%lld", n ? ", " : "", (long long)devices);
    out->mode = refused;
    return ERR_NONE;
}

static enum error advise_try_all(struct advice *a) {
    const struct advise_ask *ask = a->ask;
    const struct condition on = condition_at_batch(ask, (double)ask->config->batch.size);
    struct left_out left = {0};
    TRY_MEMORY(a->row = pool_alloc(a->pool, (size_t)ask->ndevices * WAYS_MOST * sizeof *a->row));
    for (int d = 0; d < ask->ndevices; d++) TRY(advise_try_on(a, &on, ask->devices[d], &left));
    if (left.mode) advise_note(&a->notes, "Mode %s is left out on %s devices: %s.", left.mode, left.on, left.why);
    return ERR_NONE;
}

static int advise_other_mode(const struct advice *a) {
    const struct advise_way *best = &a->row[a->fastest].as;
    struct filter f = {best->devices, -1, best->mode, best->measured, false}, alone = f;
    if (best->mode == advise_alone()) f.devices = 0;
    alone.devices = 1;
    int x = advise_fastest_of(a, f), y = advise_fastest_of(a, alone);
    return x < 0 || (y >= 0 && row_beats(&a->row[y], &a->row[x])) ? y : x;
}

static void advise_choose(struct advice *a) {
    struct filter f = any;
    a->fastest = advise_fastest_of(a, f);
    if (a->fastest < 0) return;
    a->simplest = advise_simplest_near(a, a->fastest, 0, -1);
    f.measured = 0;
    a->configured[0] = advise_fastest_of(a, f);
    a->configured[1] = advise_simplest_near(a, a->configured[0], 0, 0);
    if (a->configured[0] < 0) a->configured[0] = a->fastest, a->configured[1] = a->simplest;
    a->other = advise_other_mode(a);
    f = any, f.unfit = true;
    a->barred = advise_fastest_of(a, f);
    if (a->barred >= 0 && a->row[a->barred].rate <= a->row[a->fastest].rate) a->barred = -1;
}

static void advise_choose_at(struct advice *a, int d) {
    struct filter f = {a->ask->devices[d], -1, -1, 0, false};
    int *best = a->at[d].best;
    a->at[d].fastest = -1;
    for (int m = 0; m < advise_modes(); m++) {
        f.mode = m;
        f.devices = m == advise_alone() ? 1 : a->ask->devices[d];
        best[m] = advise_fastest_of(a, f);
        int so_far = a->at[d].fastest;
        if (best[m] >= 0 && (so_far < 0 || a->row[best[m]].rate > a->row[so_far].rate)) a->at[d].fastest = best[m];
    }
    a->at[d].simplest = advise_simplest_near(a, a->at[d].fastest, a->ask->devices[d], 0);
}

static enum error advise_refuse(const struct advice *a) {
    char least[32], given[32];
    int best = 0;
    for (int i = 1; i < a->nrows; i++)
        if (a->row[i].answer.memory < a->row[best].answer.memory) best = i;
    return FAIL(ERR_CONFIG, "nothing fits in %s a device\nthe least is %s: %s", text_of_bytes(a->ask->memory, given),
                text_of_bytes(a->row[best].answer.memory, least), advise_text(a, &a->row[best].as));
}

enum error advise_decide(const struct advise_ask *ask, struct pool *pool, struct advice *out) {
    *out = (struct advice){.ask = ask, .pool = pool, .notes.pool = pool, .other = -1, .barred = -1};
    TRY(advise_try_all(out));
    advise_choose(out);
    if (out->fastest < 0) return advise_refuse(out);
    for (int d = 0; d < ask->ndevices; d++) advise_choose_at(out, d);
    TRY(advise_find_limits(out));
    TRY(advise_draw_map(out));
    return advise_turn_over(out);
}

/* Predicted by measured; 1 of one device alone, NaN of what has not run. */
static double advise_off_of(const struct advice *a, int m) {
    for (int i = 0; i < a->nchecks; i++)
        if (a->check[i].mode == m && !a->check[i].why) return a->check[i].predicted / a->check[i].measured;
    return m == advise_alone() ? 1 : (double)NAN;
}

double advise_doubt(const struct advice *a, int x, int y) {
    double ratio = advise_off_of(a, x) / advise_off_of(a, y);
    return ratio < 1 ? 1 / ratio - 1 : ratio - 1;
}

double advise_off(const struct advice *a) {
    double worst = (double)NAN;
    for (int m = 0; m < advise_modes(); m++) {
        double off = m == advise_alone() ? (double)NAN : fabs(advise_off_of(a, m) - 1);
        if (isfinite(off) && !(off <= worst)) worst = off;
    }
    return worst;
}

bool advise_is_refuted(const struct advice *a) {
    return advise_off(a) > 0.5;
}

void advise_note(struct advise_notes *notes, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = pool_vprintf(notes->pool, fmt, args);
    va_end(args);
    if (text && notes->n < ADVISE_NOTES) notes->text[notes->n++] = text;
}
