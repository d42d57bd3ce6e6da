/* Augmentation: the list, rotation, erasing, and colours. */
#include "engine/data/augment.h"

#include "engine/base/real.h"
#include "engine/base/text.h"
#include "engine/base/vector.h"

#include <math.h>
#include <string.h>

/* ---- the list ---- */
enum { CROP_MAX = 64 };

static bool number_of(const struct node *n, double low, double high, double *out) {
    return n && n->kind == NODE_SCALAR && text_real(n->text, out) && *out >= low && *out <= high;
}

static enum error parse_flip(const struct node *value, struct augment *out) {
    if (value) return FAIL(ERR_CONFIG, "flip takes no value");
    out->flip = true;
    return ERR_NONE;
}

static enum error parse_crop(const struct node *value, struct augment *out) {
    if (!value || value->kind != NODE_SCALAR || !text_int(value->text, &out->crop) || out->crop < 1 ||
        out->crop > CROP_MAX)
        return FAIL(ERR_CONFIG, "crop takes the pixels to pad by, from 1 to %d", CROP_MAX);
    return ERR_NONE;
}

static bool range_of(const struct node *n, double low, double high, double out[2]) {
    return n->kind == NODE_LIST && n->count == 2 && number_of(n->items[0], low, high, &out[0]) &&
           number_of(n->items[1], low, high, &out[1]) && out[0] <= out[1];
}

/* [low, high] of a key of 'what', where it is given. */
static enum error range_parse(const struct node *value, const char *what, const char *key, double high, double out[2]) {
    const struct node *n = node_get(value, key);
    if (!n || range_of(n, 1e-4, high, out)) return ERR_NONE;
    return FAIL(ERR_CONFIG, "%s of %s is a list of two numbers, at most %g", key, what, high);
}

/* Whether a map has no other keys than these. */
static bool keys_known(const struct node *map, const char *const *keys, int n) {
    int known = 0;
    for (int i = 0; i < n; i++) known += node_get(map, keys[i]) != NULL;
    return map->kind == NODE_MAP && known == map->count;
}

static enum error parse_resized_crop(const struct node *value, struct augment *out) {
    struct crop_rule *r = &out->resized_crop;
    *r = (struct crop_rule){true, {0.08, 1}, {3.0 / 4, 4.0 / 3}};
    if (!value) return ERR_NONE;
    if (!keys_known(value, (const char *const[]){"scale", "ratio"}, 2))
        return FAIL(ERR_CONFIG, "random_resized_crop takes {scale: [0.08, 1], ratio: [0.75, 1.333]}");
    TRY(range_parse(value, "random_resized_crop", "scale", 1, r->scale));
    return range_parse(value, "random_resized_crop", "ratio", 100, r->ratio);
}

static enum error parse_jitter(const struct node *value, struct augment *out) {
    static const char *const keys[] = {"brightness", "contrast", "saturation"};
    enum { KEYS = sizeof keys / sizeof *keys };
    struct jitter *j = &out->jitter;
    double *of[KEYS] = {&j->brightness, &j->contrast, &j->saturation};
    int known = 0;
    if (number_of(value, 0, 10, of[0]))
        *of[1] = *of[2] = *of[0], known = 1;
    else if (value && value->kind == NODE_MAP)
        for (int i = 0; i < KEYS; i++) known += number_of(node_get(value, keys[i]), 0, 10, of[i]);
    if (known == 0 || (value->kind == NODE_MAP && known != value->count))
        return FAIL(
            ERR_CONFIG,
            "jitter takes {brightness: 0.4, contrast: 0.4, saturation: 0.4} or one number for all, from 0 to 10");
    return ERR_NONE;
}

static bool degrees_of(const struct node *n, double out[2]) {
    if (!number_of(n, 0, 180, &out[1])) return n && range_of(n, -360, 360, out);
    out[0] = -out[1];
    return true;
}

static enum error parse_rotation(const struct node *value, struct augment *out) {
    struct rotation *r = &out->rotation;
    const struct node *fill = value ? node_get(value, "fill") : NULL;
    bool map = value && value->kind == NODE_MAP;
    *r = (struct rotation){.on = true};
    if (!degrees_of(map ? node_get(value, "degrees") : value, r->degrees) ||
        (map && !keys_known(value, (const char *const[]){"degrees", "fill"}, 2)) ||
        (fill && !number_of(fill, -1e30, 1e30, &r->fill)))
        return FAIL(ERR_CONFIG,
                    "rotation takes the degrees to either side, from 0 to 180, or {degrees: [-10, 30], fill: 0}");
    return ERR_NONE;
}

static enum error parse_erasing(const struct node *value, struct augment *out) {
    struct erasing *e = &out->erasing;
    *e = (struct erasing){0.5, {0.02, 0.33}, {0.3, 3.3}, 0};
    if (!value || (number_of(value, 0, 1, &e->p) && e->p > 0)) return ERR_NONE;
    const struct node *p = node_get(value, "p"), *fill = node_get(value, "value");
    if (!keys_known(value, (const char *const[]){"p", "scale", "ratio", "value"}, 4) ||
        (p && (!number_of(p, 0, 1, &e->p) || !(e->p > 0))) || (fill && !number_of(fill, -1e30, 1e30, &e->value)))
        return FAIL(ERR_CONFIG, "erasing takes its probability, above 0 and at most 1, or {p: 0.5, scale: [0.02, "
                                "0.33], ratio: [0.3, 3.3], value: 0}");
    TRY(range_parse(value, "erasing", "scale", 1, e->scale));
    return range_parse(value, "erasing", "ratio", 100, e->ratio);
}

static enum error parse_mixing(const struct node *value, const char *name, double *alpha) {
    *alpha = 1;
    if (!value || number_of(value, 1e-3, 1e3, alpha)) return ERR_NONE;
    return FAIL(ERR_CONFIG, "%s takes the alpha of Beta(alpha, alpha), from 0.001 to 1000", name);
}

static enum error parse_mixup(const struct node *value, struct augment *out) {
    return parse_mixing(value, "mixup", &out->mixup);
}

static enum error parse_cutmix(const struct node *value, struct augment *out) {
    return parse_mixing(value, "cutmix", &out->cutmix);
}

static const struct {
    const char *name;
    enum error (*parse)(const struct node *value, struct augment *out);
} kinds[] = {{"flip", parse_flip},     {"crop", parse_crop},         {"random_resized_crop", parse_resized_crop},
             {"jitter", parse_jitter}, {"rotation", parse_rotation}, {"erasing", parse_erasing},
             {"mixup", parse_mixup},   {"cutmix", parse_cutmix}};

/* seen: which kinds the list has had. */
static enum error item_parse(const struct node *item, unsigned *seen, struct augment *out, const struct node **at) {
    const struct node *value = item->kind == NODE_MAP && item->count == 1 ? item->items[0] : NULL;
    const char *name = value ? value->key : item->kind == NODE_SCALAR ? item->text : "";
    *at = value ? value : item;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0) continue;
        if (*seen & 1u << i) return FAIL(ERR_CONFIG, "%s appears twice", name);
        *seen |= 1u << i;
        return kinds[i].parse(value, out);
    }
    return FAIL(ERR_CONFIG, "no such augmentation\nwrite a list of: flip, {crop: 4}, random_resized_crop, {rotation: "
                            "15}, {jitter: {brightness: 0.4}}, {erasing: 0.5}, {mixup: 0.2}, {cutmix: 1.0}");
}

enum error augment_parse(const struct node *node, struct augment *out, const struct node **at) {
    unsigned seen = 0;
    *out = (struct augment){0};
    if (!node) return ERR_NONE;
    if (node->kind != NODE_LIST)
        TRY(item_parse(node, &seen, out, at));
    else
        for (int i = 0; i < node->count; i++) TRY(item_parse(node->items[i], &seen, out, at));
    *at = node;
    if (out->crop && out->resized_crop.on)
        return FAIL(ERR_CONFIG, "crop and random_resized_crop each choose the part: give one");
    return ERR_NONE;
}

/* ---- rotation and erasing ---- */
enum { JITTER_BLOCK = 16, ROTATION_BLOCK, ERASING_BLOCK, ATTEMPTS = 10 }; /* of a visit's words: after box_draw's */

static int64_t fixed_point(double v) {
    return (int64_t)floor(v * 65536 + 0.5);
}

double rotation_draw(const struct rotation *r, struct rng_key key, uint64_t id) {
    uint32_t word[4];
    rng_words(key, id, ROTATION_BLOCK, word);
    return draw_between(r->degrees[0], r->degrees[1], word[0]);
}

struct turn turn_make(double degrees, int64_t width, int64_t height) {
    double angle = -degrees * (3.14159265358979323846 / 180), c = real_cos(angle), s = real_sin(angle);
    double w = (double)width / 2, h = (double)height / 2, x = w - c * w - s * h, y = h + s * w - c * h;
    return (struct turn){fixed_point(c),  fixed_point(s), fixed_point(x + c * 0.5 + s * 0.5),
                         fixed_point(-s), fixed_point(c), fixed_point(y - s * 0.5 + c * 0.5)};
}

bool erasing_draw(const struct erasing *e, struct rng_key key, uint64_t id, int64_t width, int64_t height,
                  struct box *out) {
    uint32_t word[4];
    rng_words(key, id, ERASING_BLOCK, word);
    if ((double)rng_unit(word[0]) >= e->p) return false;
    for (uint64_t k = 1; k <= ATTEMPTS; k++) {
        rng_words(key, id, ERASING_BLOCK + k, word);
        double area = (double)width * (double)height * draw_between(e->scale[0], e->scale[1], word[0]);
        double shape = real_exp(draw_between(real_log(e->ratio[0]), real_log(e->ratio[1]), word[1]));
        double h = round(sqrt(area * shape)), w = round(sqrt(area / shape));
        if (h >= (double)height || w >= (double)width) continue;
        *out = (struct box){floor(((double)width - w + 1) * (double)rng_unit(word[2])),
                            floor(((double)height - h + 1) * (double)rng_unit(word[3])), w, h};
        return true;
    }
    return false;
}

/* ---- colours ---- */

bool jitter_on(const struct jitter *j) {
    return j->brightness > 0 || j->contrast > 0 || j->saturation > 0;
}

/* Factor parts of x, and the rest of one value. */
VECTORISED static void pixels_mix(float *x, float value, float factor, int64_t n) {
    float rest = value * (1 - factor);
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] * factor + rest;
        v = v < 0 ? 0 : v;
        x[i] = v > 255 ? 255 : v;
    }
}

/* Factor parts of three planes, and the rest of their grey. */
VECTORISED static void mix_grey(float *r, float *g, float *b, float factor, int64_t n) {
    float rest = 1 - factor, most = 255;
    for (int64_t i = 0; i < n; i++) {
        float grey = (0.299f * r[i] + 0.587f * g[i] + 0.114f * b[i]) * rest;
        float v = r[i] * factor + grey, w = g[i] * factor + grey, u = b[i] * factor + grey;
        v = v < 0 ? 0 : v, w = w < 0 ? 0 : w, u = u < 0 ? 0 : u;
        r[i] = v > most ? most : v, g[i] = w > most ? most : w, b[i] = u > most ? most : u;
    }
}

/* The sum of x (n), in LANES partial sums, so that it is the same at every width of vectors. */
VECTORISED static float plane_sum(const float *x, int64_t n) {
    enum { LANES = 16 };
    float lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += x[i + k];
    for (; i < n; i++) lane[i % LANES] += x[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

static float grey_mean(const float *x, int channels, int64_t n) {
    if (channels == 1) return plane_sum(x, n) / (float)n;
    return (0.299f * plane_sum(x, n) + 0.587f * plane_sum(x + n, n) + 0.114f * plane_sum(x + 2 * n, n)) / (float)n;
}

static float factor_of(double v, uint32_t word) {
    double low = v < 1 ? 1 - v : 0;
    return (float)(low + (1 + v - low) * (double)rng_unit(word));
}

void jitter_apply(const struct jitter *j, struct rng_key key, uint64_t id, int channels, int64_t plane, float *x) {
    static const unsigned char orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    const double by[3] = {j->brightness, j->contrast, j->saturation};
    uint32_t word[4];
    rng_words(key, id, JITTER_BLOCK, word);
    const unsigned char *order = orders[(uint64_t)word[3] * 6 >> 32];
    for (int k = 0; k < 3; k++) {
        int what = order[k];
        float factor = factor_of(by[what], word[what]);
        if (!(by[what] > 0)) continue;
        if (what == 2 && channels == 3)
            mix_grey(x, x + plane, x + 2 * plane, factor, plane);
        else if (what < 2)
            pixels_mix(x, what ? grey_mean(x, channels, plane) : 0, factor, channels * plane);
    }
}
