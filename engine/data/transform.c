/* Augmentation and normalisation.
 *
 * Each visit to a sample has its own counter (its id), from which its random words come: one for the flip, two for
 * where the crop lies, others for a part of random size, an angle, colours and what is erased. What moves goes
 * first, then rotation, then colours, then the mean is taken off, and a part is erased at last. Padding is
 * PyTorch's: the raw picture is padded with 0, then normalised, so the border is what black becomes. The crop comes
 * first and the flip second; as places of crops are symmetric, the other order is the same by chance. */
#include "engine/data/transform.h"

#include "engine/base/text.h"
#include "engine/base/vector.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- reading 'normalize' ----
 * The parsers record an error and leave in *at where it is. */
enum normalize_kind { NORMALIZE_AUTO, NORMALIZE_OFF, NORMALIZE_GIVEN };
struct normalize {
    enum normalize_kind kind;
    int count; /* of mean and std each */
    double mean[CHANNELS_MAX], std[CHANNELS_MAX];
};

/* Reads a number, or a list of them, one a channel or column; *at is where an error is. */
static enum error numbers_parse(const struct node *node, double out[CHANNELS_MAX], int *count, const struct node **at) {
    *at = node;
    *count = node->kind == NODE_LIST ? node->count : 1;
    if (*count < 1 || *count > CHANNELS_MAX)
        return FAIL(ERR_CONFIG, "%s takes 1 to %d numbers, one for each channel or column", node->key, CHANNELS_MAX);
    for (int i = 0; i < *count; i++) {
        const struct node *item = node->kind == NODE_LIST ? node->items[i] : node;
        *at = item;
        if (item->kind != NODE_SCALAR || !text_real(item->text, &out[i]))
            return FAIL(ERR_CONFIG, "%s takes a number or a list of numbers", node->key);
    }
    return ERR_NONE;
}

static enum error normalize_given(const struct node *node, struct normalize *out, const struct node **at) {
    const struct node *mean = node_get(node, "mean"), *std = node_get(node, "std");
    if (!mean || !std || node->count != 2)
        return FAIL(ERR_CONFIG, "normalize takes auto, off or {mean: [..], std: [..]}");
    int count;
    TRY(numbers_parse(mean, out->mean, &out->count, at));
    TRY(numbers_parse(std, out->std, &count, at));
    *at = std;
    if (count != out->count) return FAIL(ERR_CONFIG, "mean has %d numbers and std %d", out->count, count);
    for (int i = 0; i < count; i++)
        if (!(out->std[i] > 1e-30) || out->std[i] > 1e30 || fabs(out->mean[i]) > 1e30)
            return FAIL(ERR_CONFIG, "mean %g and std %g are out of range\nstd is above 0", out->mean[i], out->std[i]);
    return ERR_NONE;
}

static enum error normalize_parse(const struct node *node, struct normalize *out, const struct node **at) {
    *out = (struct normalize){.kind = NORMALIZE_AUTO};
    *at = node;
    if (!node) return ERR_NONE;
    if (node->kind == NODE_SCALAR && !strcmp(node->text, "auto")) return ERR_NONE;
    out->kind = NORMALIZE_OFF;
    if (node->kind == NODE_SCALAR && !strcmp(node->text, "off")) return ERR_NONE;
    out->kind = NORMALIZE_GIVEN;
    return normalize_given(node, out, at);
}

void data_config_check(const struct data_config *c, struct config_errors *e) {
    const struct node *at = NULL;
    struct augment augment;
    struct normalize normalize;
    if (augment_parse(c->augment, &augment, &at) != ERR_NONE)
        config_error(e, at, false, "%s\n%s", error_message(), error_hint());
    if (normalize_parse(c->normalize, &normalize, &at) != ERR_NONE)
        config_error(e, at, false, "%s\n%s", error_message(), error_hint());
}

bool data_config_mixes(const struct data_config *c, const struct dataset *d) {
    const struct node *at;
    struct augment augment;
    return augment_parse(c->augment, &augment, &at) == ERR_NONE && d->classes && mixing_on(&augment);
}

/* ---- normalisation ---- */
static double unit_of(const struct dataset *d) {
    return d->type == SAMPLE_U8 ? 255 : 1;
}

void normalization_tell(const struct dataset *d, const struct normalization *n, int k, double *mean, double *std) {
    *mean = (double)n->mean[k] / unit_of(d);
    *std = 1 / ((double)n->scale[k] * unit_of(d));
}

static void normalization_set(const struct dataset *d, struct normalization *n, int k, double mean, double std) {
    n->mean[k] = (float)(mean * unit_of(d));
    n->scale[k] = (float)(1 / (std * unit_of(d)));
}

static int channels_of(const struct dataset *d) {
    bool apart = d->plane || d->ops->column_name;
    return apart && d->shape.dim[0] <= CHANNELS_MAX ? (int)d->shape.dim[0] : 1;
}

struct moments { /* sums and sums of squares: of each channel's values, and then of the targets */
    double sum[2 * CHANNELS_MAX], square[2 * CHANNELS_MAX];
};

static void moment_add(struct moments *m, int k, double v) {
    m->sum[k] += v;
    m->square[k] += v * v;
}

static void moments_add(struct moments *m, const struct dataset *d, const struct normalization *n, const void *raw,
                        const float *target) {
    int64_t inner = shape_count(&d->shape) / n->channels;
    for (int c = 0; c < n->channels; c++) {
        const uint8_t *bytes = (const uint8_t *)raw + c * inner;
        uint64_t sum = 0, square = 0; /* of bytes: whole numbers, which doubles add exactly */
        for (int64_t i = 0; i < inner && d->type == SAMPLE_U8; i++) sum += bytes[i], square += bytes[i] * bytes[i];
        for (int64_t i = 0; i < inner && d->type != SAMPLE_U8; i++)
            moment_add(m, c, (double)((const float *)raw)[c * inner + i]);
        m->sum[c] += (double)sum, m->square[c] += (double)square;
    }
    for (int64_t k = 0; n->targets && k < d->targets; k++)
        moment_add(m, CHANNELS_MAX + (n->targets > 1 ? (int)k : 0), (double)target[k]);
}

static void moments_give(const struct moments *m, int from, double count, int n, float *mean, float *scale) {
    for (int k = 0; k < n; k++) {
        double of = m->sum[from + k] / count, deviation = sqrt(fmax(m->square[from + k] / count - of * of, 0));
        bool constant = deviation <= 1e-7 * fabs(of) || deviation < 1e-30;
        mean[k] = (float)of;
        scale[k] = constant ? 1 : (float)(1 / deviation);
    }
}

/* The samples that are measured: generated ones are alike, and the first will do. Those of a file have an order that means
 * something, perhaps; where they are dear to read, some from everywhere in it. */
static int64_t measured_count(const struct dataset *d) {
    enum { SAMPLES = 1000 };
    bool whole = d->ops->recognises && (d->targets > 0 || d->shape.ndim == 1);
    return whole || d->size < SAMPLES ? d->size : SAMPLES;
}

/* out->channels and out->targets say of what. */
static enum error normalization_measure(struct dataset *d, struct moments *m, struct normalization *out) {
    int64_t n = measured_count(d);
    size_t target_bytes = (size_t)align_floats(d->targets + d->labels) * sizeof(float), bytes = dataset_sample_bytes(d);
    char *raw = memory_new(target_bytes + bytes);
    if (!raw) return ERR_MEMORY;
    enum error err = ERR_NONE;
    int32_t *labels = (int32_t *)raw + d->targets;
    for (int64_t i = 0; i < n && err == ERR_NONE; i++) {
        int64_t at = d->ops->recognises ? (int64_t)((__int128)i * d->size / n) : i;
        err = d->ops->read(d, at, raw + target_bytes, labels, (float *)raw);
        if (err == ERR_NONE) moments_add(m, d, out, raw + target_bytes, (float *)raw);
    }
    memory_free(raw);
    return err;
}

static enum error normalization_of(struct dataset *d, bool inputs, struct normalization *out) {
    double n = (double)measured_count(d), each = (double)(shape_count(&d->shape) / out->channels);
    struct moments *m = memory_new(sizeof *m);
    if (!m) return ERR_MEMORY;
    enum error err = normalization_measure(d, m, out);
    if (inputs) moments_give(m, 0, n * each, out->channels, out->mean, out->scale);
    each = out->targets == 1 ? (double)d->targets : 1;
    moments_give(m, CHANNELS_MAX, n * each, out->targets, out->target_mean, out->target_scale);
    memory_free(m);
    return err;
}

/* Tokens are names: the network sees them as they are. */
static enum error normalization_none(const struct dataset *d, const struct normalize *n, struct normalization *out) {
    *out = (struct normalization){.channels = 1, .scale = {1}};
    if (n->kind != NORMALIZE_GIVEN) return ERR_NONE;
    return FAIL(ERR_CONFIG, "data.normalize: samples of '%s' are tokens, which have no mean", d->name);
}

enum error normalization_find(struct dataset *d, const struct data_config *c, struct normalization *out) {
    const struct node *at;
    struct normalize n;
    TRY(normalize_parse(c->normalize, &n, &at));
    if (d->type == SAMPLE_TOKENS) return normalization_none(d, &n, out);
    *out = (struct normalization){.channels = 1, .scale = {(float)(1 / unit_of(d))}};
    if (c->normalize_target && c->values) out->targets = d->targets <= CHANNELS_MAX ? (int)d->targets : 1;
    if (n.kind == NORMALIZE_AUTO) out->channels = channels_of(d);
    if (n.kind == NORMALIZE_AUTO || out->targets) TRY(normalization_of(d, n.kind == NORMALIZE_AUTO, out));
    if (n.kind != NORMALIZE_GIVEN) return ERR_NONE;
    if (n.count != 1 && n.count != d->shape.dim[0])
        return FAIL(
            ERR_CONFIG,
            "normalize has %d means, but samples of '%s' have %lld channels or columns\ngive one for all, or one each",
            n.count, d->name, (long long)d->shape.dim[0]);
    out->channels = n.count;
    for (int k = 0; k < n.count; k++) normalization_set(d, out, k, n.mean[k], n.std[k]);
    return ERR_NONE;
}

void normalization_undo(const struct normalization *n, float *y, int64_t count) {
    for (int64_t k = 0; n->targets && k < count; k++) {
        int64_t of = n->targets > 1 ? k : 0;
        y[k] = (float)((double)y[k] / (double)n->target_scale[of] + (double)n->target_mean[of]);
    }
}

static bool pairs_equal(int n, const float *mean, const float *scale, const float *means, const float *scales) {
    size_t bytes = (size_t)n * sizeof *mean;
    return !memcmp(mean, means, bytes) && !memcmp(scale, scales, bytes);
}

bool normalization_equal(const struct normalization *a, const struct normalization *b) {
    return a->channels == b->channels && a->targets == b->targets &&
           pairs_equal(a->channels, a->mean, a->scale, b->mean, b->scale) &&
           pairs_equal(a->targets, a->target_mean, a->target_scale, b->target_mean, b->target_scale);
}

/* The first few, where a table has more. */
static int add_words(const struct dataset *d, const struct normalization *n, bool deviations, char *out, int size) {
    enum { SHOWN = 16 };
    double of[2];
    int used = 0;
    for (int k = 0; k < n->channels && k < SHOWN; k++) {
        normalization_tell(d, n, k, &of[0], &of[1]);
        used += snprintf(out + used, (size_t)(size - used), " %.6g", of[deviations]);
    }
    return used + snprintf(out + used, (size_t)(size - used), "%s", n->channels > SHOWN ? " ..." : "");
}

char *normalization_words(const struct dataset *d, const struct normalization *n, char out[640]) {
    int used = snprintf(out, 640, "mean");
    used += add_words(d, n, false, out + used, 640 - used);
    used += snprintf(out + used, (size_t)(640 - used), ", deviation");
    used += add_words(d, n, true, out + used, 640 - used);
    if (n->targets)
        snprintf(out + used, (size_t)(640 - used), "; targets: mean %.6g, deviation %.6g%s", (double)n->target_mean[0],
                 1 / (double)n->target_scale[0], n->targets > 1 ? ", ..." : "");
    return out;
}

enum error normalization_check(struct dataset *d, const struct data_config *c, const struct normalization *n) {
    const struct node *at;
    struct normalize asked;
    struct normalization given;
    char is[640], was[640];
    TRY(normalize_parse(c->normalize, &asked, &at));
    if (asked.kind == NORMALIZE_AUTO) return ERR_NONE;
    struct data_config inputs = *c;
    inputs.normalize_target = false;
    TRY(normalization_find(d, &inputs, &given));
    given.targets = n->targets;
    memcpy(given.target_mean, n->target_mean, sizeof n->target_mean);
    memcpy(given.target_scale, n->target_scale, sizeof n->target_scale);
    if (normalization_equal(&given, n)) return ERR_NONE;
    return FAIL(
        ERR_CONFIG,
        "data.normalize gives %s, and the network was trained with %s\n'normalize: auto' takes those of the checkpoint",
        normalization_words(d, &given, is), normalization_words(d, n, was));
}

/* ---- one sample ---- */
static enum error augment_check(const struct augment *a, const struct dataset *d) {
    bool byte = d->type == SAMPLE_U8, colours = d->shape.dim[0] == 3 || d->shape.dim[0] == 1;
    if (mixing_on(a) && (d->type == SAMPLE_TOKENS || d->labels > 1))
        return FAIL(ERR_CONFIG, "data.augment: mixup and cutmix mix values, and samples of '%s' are tokens", d->name);
    if (a->cutmix > 0 && !d->plane)
        return FAIL(ERR_CONFIG, "data.augment: cutmix needs pictures, and samples of '%s' have no height and width",
                    d->name);
    bool any = a->flip || a->crop || a->resized_crop.on || a->rotation.on || jitter_on(&a->jitter) || a->erasing.p > 0;
    if (any && !d->plane)
        return FAIL(ERR_CONFIG, "data.augment needs pictures, and samples of '%s' have no height and width", d->name);
    if (jitter_on(&a->jitter) && !(byte && colours))
        return FAIL(ERR_CONFIG,
                    "data.augment: jitter needs pictures of bytes in 1 or 3 channels, which those of '%s' are not",
                    d->name);
    return ERR_NONE;
}

enum error transform_init(struct transform *t, const struct dataset *d, const struct data_config *c,
                          const struct normalization *norm, bool augment, uint64_t seed) {
    const struct node *at;
    *t = (struct transform){.norm = *norm, .key = rng_key(seed, RNG_AUGMENT), .mixing_key = rng_key(seed, RNG_MIXING)};
    TRY(augment_parse(augment ? c->augment : NULL, &t->augment, &at));
    TRY(augment_check(&t->augment, d));
    if (norm->channels != 1 && norm->channels != d->shape.dim[0])
        return FAIL(ERR_CONFIG, "%d channels are normalised, but samples of '%s' have %lld", norm->channels, d->name,
                    (long long)d->shape.dim[0]);
    return ERR_NONE;
}

void transform_target(const struct transform *t, float *target, int64_t n) {
    for (int64_t k = 0; t->norm.targets && k < n; k++) {
        int64_t of = t->norm.targets > 1 ? k : 0;
        target[k] = (target[k] - t->norm.target_mean[of]) * t->norm.target_scale[of];
    }
}

enum error transform_read(const struct transform *t, struct dataset *d, int64_t i, uint64_t id, void *raw,
                          int32_t *labels, float *target) {
    const struct visit visit = {t->augment.resized_crop, t->key, id};
    if (visit.rule.on && d->ops->read_part) return d->ops->read_part(d, i, &visit, raw, labels, target);
    return d->ops->read(d, i, raw, labels, target);
}

VECTORISED static void normalise_bytes(const uint8_t *from, int64_t n, float mean, float scale, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = ((float)from[i] - mean) * scale;
}

VECTORISED static void normalise_floats(const float *from, int64_t n, float mean, float scale, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (from[i] - mean) * scale;
}

VECTORISED static void tokens_widen(const int32_t *from, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)from[i];
}

/* One channel of a sample as it is read: the raw values from 'at' on; mean and scale normalise them. */
struct raw_plane {
    const struct dataset *d;
    const void *raw;
    int64_t at;
    float mean, scale;
};

/* out (n) = the plane's values [from, from + n), normalised. */
static void plane_normalise(const struct raw_plane *p, int64_t from, int64_t n, float *out) {
    from += p->at;
    if (p->d->type == SAMPLE_U8)
        normalise_bytes((const uint8_t *)p->raw + from, n, p->mean, p->scale, out);
    else if (p->d->type == SAMPLE_TOKENS)
        tokens_widen((const int32_t *)p->raw + from, n, out);
    else
        normalise_floats((const float *)p->raw + from, n, p->mean, p->scale, out);
}

static void row_fill(float *row, int64_t n, float v) {
    for (int64_t i = 0; i < n; i++) row[i] = v;
}

static void row_reverse(float *row, int64_t n) {
    for (int64_t i = 0, j = n - 1; i < j; i++, j--) {
        float v = row[i];
        row[i] = row[j];
        row[j] = v;
    }
}

/* Where a cut begins in the picture: negative is in the padding. */
struct cut_place {
    int64_t y, x;
    bool flip;
};

static struct cut_place place_draw(const struct transform *t, uint64_t id) {
    uint32_t w[4];
    rng_words(t->key, id, 0, w);
    uint64_t places = 2 * (uint64_t)t->augment.crop + 1;
    return (struct cut_place){.y = (int64_t)(w[1] * places >> 32) - t->augment.crop,
                              .x = (int64_t)(w[2] * places >> 32) - t->augment.crop,
                              .flip = t->augment.flip && w[0] >> 31};
}

/* out[y][x] = plane[y + place.y][x + place.x], or what 0 becomes outside. */
static void plane_cut(const struct raw_plane *from, struct cut_place p, float *out) {
    int64_t h = from->d->shape.dim[1], w = from->d->shape.dim[2];
    float border = (0 - from->mean) * from->scale;
    int64_t left = p.x < 0 ? -p.x : 0, right = p.x > 0 ? p.x : 0; /* columns of border */
    left = left < w ? left : w;
    right = right < w ? right : w;
    int64_t middle = w - left - right;
    for (int64_t y = 0; y < h; y++, out += w) {
        bool inside = y + p.y >= 0 && y + p.y < h;
        row_fill(out, inside ? left : w, border);
        if (!inside) continue;
        row_fill(out + w - right, right, border);
        if (middle > 0) plane_normalise(from, (y + p.y) * w + left + p.x, middle, out + left);
        if (p.flip) row_reverse(out, w);
    }
}

/* ---- a part of a sample, as large as the whole ---- */
static float plane_value(const struct raw_plane *p, int64_t i) {
    i += p->at;
    return p->d->type == SAMPLE_U8 ? (float)((const uint8_t *)p->raw)[i] : ((const float *)p->raw)[i];
}

struct between { /* two neighbours, and how much of the second */
    int64_t at[2];
    float part;
};

static struct between between_find(double from, double length, int64_t i, int64_t size) {
    double low = from, high = from + length - 1, v = from + ((double)i + 0.5) * length / (double)size;
    v = v - 0.5 < low ? low : v - 0.5 > high ? high : v - 0.5;
    int64_t at = (int64_t)v;
    return (struct between){{at, at < (int64_t)high ? at + 1 : at}, (float)(v - (double)at)};
}

/* A value of the plane between two rows and two columns, linearly interpolated. */
static float plane_between(const struct raw_plane *p, struct between row, struct between column) {
    int64_t w = p->d->shape.dim[2];
    float v[2];
    for (int k = 0; k < 2; k++) {
        float a = plane_value(p, row.at[k] * w + column.at[0]);
        v[k] = a + (plane_value(p, row.at[k] * w + column.at[1]) - a) * column.part;
    }
    return v[0] + (v[1] - v[0]) * row.part;
}

/* out: the box, made as large as the sample. */
static void plane_enlarge(const struct raw_plane *p, struct box box, bool flip, float *out) {
    int64_t h = p->d->shape.dim[1], w = p->d->shape.dim[2];
    for (int64_t y = 0; y < h; y++, out += w) {
        struct between row = between_find(box.y, box.h, y, h);
        for (int64_t x = 0; x < w; x++) out[x] = plane_between(p, row, between_find(box.x, box.w, x, w));
        if (flip) row_reverse(out, w);
    }
}

/* ---- rotation ---- */
/* How a picture is moved before it is rotated: cut at a place, or a box of it enlarged. */
struct moved {
    struct cut_place place;
    bool part;
    struct box box;
};

/* Pixel (x, y) of the moved plane. */
static float plane_moved(const struct raw_plane *p, const struct moved *m, int64_t x, int64_t y) {
    int64_t h = p->d->shape.dim[1], w = p->d->shape.dim[2];
    x = m->place.flip ? w - 1 - x : x;
    if (m->part)
        return plane_between(p, between_find(m->box.y, m->box.h, y, h), between_find(m->box.x, m->box.w, x, w));
    x += m->place.x, y += m->place.y;
    return x >= 0 && x < w && y >= 0 && y < h ? plane_value(p, y * w + x) : 0;
}

/* out: the moved plane, rotated; 'fill' comes where no pixel does. */
static void plane_rotate(const struct raw_plane *p, const struct moved *m, const struct turn *t, float fill,
                         float *out) {
    int64_t h = p->d->shape.dim[1], w = p->d->shape.dim[2], from_x, from_y;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++) {
            turn_source(t, x, y, &from_x, &from_y);
            bool inside = from_x >= 0 && from_x < w && from_y >= 0 && from_y < h;
            *out++ = inside ? plane_moved(p, m, from_x, from_y) : fill;
        }
}

/* ---- all of it ---- */
/* out = raw values, moved and recoloured. */
static void augment_apply(const struct transform *t, const struct dataset *d, const void *raw, uint64_t id,
                          float *out) {
    const struct augment *a = &t->augment;
    int64_t h = d->shape.dim[1], w = d->shape.dim[2];
    struct visit visit = {a->resized_crop, t->key, id};
    struct moved m = {place_draw(t, id), a->resized_crop.on && !d->ops->read_part, {0}};
    struct turn turn = turn_make(a->rotation.on ? rotation_draw(&a->rotation, t->key, id) : 0, w, h);
    if (m.part) m.box = box_draw(&visit, (int)w, (int)h);
    for (struct raw_plane p = {d, raw, 0, 0, 1}; p.at < d->shape.dim[0] * h * w; p.at += h * w)
        if (a->rotation.on)
            plane_rotate(&p, &m, &turn, (float)a->rotation.fill, out + p.at);
        else if (m.part)
            plane_enlarge(&p, m.box, m.place.flip, out + p.at);
        else
            plane_cut(&p, m.place, out + p.at);
    if (jitter_on(&a->jitter)) jitter_apply(&a->jitter, t->key, id, (int)d->shape.dim[0], h * w, out);
}

/* Puts the value into a part of every channel that is drawn. */
static void part_erase(const struct transform *t, const struct dataset *d, uint64_t id, float *out) {
    int64_t h = d->shape.dim[1], w = d->shape.dim[2];
    struct box box;
    if (!erasing_draw(&t->augment.erasing, t->key, id, w, h, &box)) return;
    for (int64_t c = 0; c < d->shape.dim[0]; c++)
        for (int64_t y = 0; y < (int64_t)box.h; y++)
            row_fill(out + (c * h + (int64_t)box.y + y) * w + (int64_t)box.x, (int64_t)box.w,
                     (float)t->augment.erasing.value);
}

void transform_apply(const struct transform *t, const struct dataset *d, const void *raw, uint64_t id, float *out) {
    const struct normalization *n = &t->norm;
    const struct augment *a = &t->augment;
    bool slow = jitter_on(&a->jitter) || a->rotation.on || (a->resized_crop.on && !d->ops->read_part);
    bool moved = !slow && (a->flip || a->crop);
    struct cut_place place = moved ? place_draw(t, id) : (struct cut_place){0};
    int64_t runs = moved ? d->shape.dim[0] : n->channels, inner = shape_count(&d->shape) / runs;
    if (slow) augment_apply(t, d, raw, id, out);
    for (int64_t c = 0; c < runs; c++) {
        int64_t k = n->channels == 1 ? 0 : c;
        const struct raw_plane p = {d, raw, c * inner, n->mean[k], n->scale[k]};
        if (slow)
            normalise_floats(out + p.at, inner, p.mean, p.scale, out + p.at);
        else if (moved)
            plane_cut(&p, place, out + p.at);
        else
            plane_normalise(&p, 0, inner, out + p.at);
    }
    if (a->erasing.p > 0) part_erase(t, d, id, out);
}
