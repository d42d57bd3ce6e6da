/* Normalisation and augmentation: the numbers, every place of a crop against a plain one, what
 * chance depends on, what is refused. */
#include "tests/unit/data_fixture.h"

#include "engine/data/transform.h"

#include <math.h>

static struct normalization find(struct dataset *d, const char *yaml) {
    struct setup s;
    struct normalization n;
    setup_make(&s, yaml);
    assert_ok(normalization_find(d, &s.config, &n));
    setup_free(&s);
    return n;
}

static void test_auto(void **state) {
    (void)state;
    struct fake f = fake_set(1500, SAMPLE_U8, (struct shape){3, {2, 3, 4}});
    struct normalization n = find(&f.base, "{set: digits, normalize: auto}");
    assert_int_equal(n.channels, 2);
    for (int c = 0; c < 2; c++) { /* two passes, over the first 1000 alone */
        double sum = 0, squares = 0;
        for (int i = 0; i < 1000; i++)
            for (int k = 12 * c; k < 12 * c + 12; k++) sum += (uint8_t)(i + k);
        double mean = sum / 12000;
        for (int i = 0; i < 1000; i++)
            for (int k = 12 * c; k < 12 * c + 12; k++) squares += pow((uint8_t)(i + k) - mean, 2);
        assert_float_equal(n.mean[c], mean, 1e-4);
        assert_float_equal(n.scale[c], 1 / sqrt(squares / 12000), 1e-6);
    }
    f = fake_set(30, SAMPLE_F32, (struct shape){1, {5}}); /* features share one pair */
    n = find(&f.base, "digits");
    assert_int_equal(n.channels, 1);
    assert_float_equal(n.mean[0], 14.52, 1e-4);
    f = fake_set(1, SAMPLE_F32, (struct shape){1, {1}}); /* constant: no division by 0 */
    n = find(&f.base, "digits");
    assert_float_equal(n.scale[0], 1, 0);
    f = fake_set(9, SAMPLE_F32, (struct shape){3, {2000, 1, 1}}); /* too many channels for one pair each */
    assert_int_equal(find(&f.base, "digits").channels, 1);
}

static void test_given(void **state) {
    (void)state;
    struct fake f = fake_set(9, SAMPLE_U8, (struct shape){3, {3, 2, 2}});
    struct normalization n = find(&f.base, "{set: digits, normalize: {mean: [0.5, 0.25, 0], std: [0.5, 1, 2]}}");
    assert_int_equal(n.channels, 3);
    assert_float_equal(n.mean[1], 63.75, 1e-4); /* PyTorch: (x / 255 - 0.25) / 1 */
    assert_float_equal(n.scale[2], 1 / 510.0, 1e-8);
    n = find(&f.base, "{set: digits, normalize: off}");
    assert_float_equal(n.scale[0], 1 / 255.0, 1e-8);
    f.base.type = SAMPLE_F32;
    n = find(&f.base, "{set: digits, normalize: {mean: 2, std: 4}}");
    assert_int_equal(n.channels, 1);
    assert_float_equal(n.mean[0], 2, 0);
    assert_float_equal(n.scale[0], 0.25, 0);
    n = find(&f.base, "{set: digits, normalize: off}");
    assert_float_equal(n.scale[0], 1, 0);
    struct setup s;
    setup_make(&s, "{set: digits, normalize: {mean: [0, 0], std: [1, 1]}}");
    assert_fails(ERR_CONFIG, normalization_find(&f.base, &s.config, &n));
    setup_free(&s);
}

enum { CH = 2, H = 5, W = 6, AREA = H * W };

/* What the pixel of the padded picture at (y, x) becomes. */
static float plain(const struct normalization *n, int64_t sample, int c, int y, int x) {
    bool inside = x >= 0 && x < W && y >= 0 && y < H;
    float raw = inside ? (float)(uint8_t)(sample + c * AREA + y * W + x) : 0;
    return (raw - n->mean[c]) * n->scale[c];
}

/* Which cut out is, or -1. */
static int which_cut(const struct normalization *n, int64_t sample, int crop, const float *out) {
    int side = 2 * crop + 1;
    for (int place = 0; place < side * side * 2; place++) {
        int dy = place / 2 / side - crop, dx = place / 2 % side - crop, same = 0;
        for (int c = 0; c < CH; c++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) {
                    int from = place & 1 ? W - 1 - x : x;
                    float want = plain(n, sample, c, y + dy, from + dx);
                    same += out[c * AREA + y * W + x] == want;
                }
        if (same == CH * AREA) return place;
    }
    return -1;
}

static void run_crop(int crop, const char *yaml, bool flips) {
    struct fake f = fake_set(50, SAMPLE_U8, (struct shape){3, {CH, H, W}});
    struct normalization n = {.channels = CH, .mean = {3, 70}, .scale = {0.5f, 0.25f}};
    struct setup s;
    struct transform t;
    uint8_t raw[CH * AREA];
    float out[CH * AREA];
    int32_t label;
    int seen[2 * 13 * 13] = {0}, places = (2 * crop + 1) * (2 * crop + 1), kinds = 0;
    setup_make(&s, yaml);
    assert_ok(transform_init(&t, &f.base, &s.config, &n, true, 11));
    for (uint64_t id = 0; id < 40 * (uint64_t)places; id++) {
        assert_ok(fake_read(&f.base, (int64_t)id % 50, raw, &label, NULL));
        transform_apply(&t, &f.base, raw, id, out);
        int place = which_cut(&n, (int64_t)id % 50, crop, out);
        assert_between(place, 0, 2 * places - 1);
        seen[place]++;
    }
    for (int k = 0; k < 2 * places; k++) {
        if (!flips && k & 1) assert_int_equal(seen[k], 0);
        if (flips || !(k & 1)) assert_between(seen[k], 1, 200); /* of 20 or 40 on average */
        kinds += seen[k] > 0;
    }
    assert_int_equal(kinds, flips ? 2 * places : places);
    setup_free(&s);
}

static void test_crop_and_flip(void **state) {
    (void)state;
    run_crop(0, "{set: digits, augment: [flip]}", true);
    run_crop(0, "{set: digits, augment: flip}", true);
    run_crop(2, "{set: digits, augment: [{crop: 2}]}", false);
    run_crop(2, "{set: digits, augment: [flip, {crop: 2}]}", true);
    run_crop(4, "{set: digits, augment: {crop: 4}}", false);
}

/* A crop wider than the picture may show nothing but border; it never reads outside. */
static void test_wide_crop(void **state) {
    (void)state;
    struct fake f = fake_set(3, SAMPLE_F32, (struct shape){3, {1, 2, 2}});
    struct normalization n = {.channels = 1, .mean = {1}, .scale = {1}};
    struct setup s;
    struct transform t;
    float *raw = calloc(4, sizeof *raw), *out = calloc(4, sizeof *out); /* for the sanitizers to watch */
    int border = 0;
    setup_make(&s, "{set: digits, augment: [flip, {crop: 9}]}");
    assert_ok(transform_init(&t, &f.base, &s.config, &n, true, 1));
    for (int k = 0; k < 4; k++) raw[k] = 5;
    for (uint64_t id = 0; id < 2000; id++) {
        transform_apply(&t, &f.base, raw, id, out);
        for (int k = 0; k < 4; k++) assert_true(out[k] == 4 || out[k] == -1);
        border += out[0] == -1 && out[3] == -1;
    }
    assert_true(border > 1000);
    free(raw);
    free(out);
    setup_free(&s);
}

static void test_chance(void **state) {
    (void)state;
    struct fake f = fake_set(3, SAMPLE_F32, (struct shape){3, {1, 8, 8}});
    struct normalization n = {.channels = 1, .scale = {1}};
    struct setup s;
    struct transform a, b, c, still;
    float raw[64], x[64], y[64];
    int32_t label;
    int differ = 0;
    setup_make(&s, "{set: digits, augment: [flip, {crop: 2}]}");
    assert_ok(transform_init(&a, &f.base, &s.config, &n, true, 1));
    assert_ok(transform_init(&b, &f.base, &s.config, &n, true, 1));
    assert_ok(transform_init(&c, &f.base, &s.config, &n, true, 2));
    assert_ok(transform_init(&still, &f.base, &s.config, &n, false, 1));
    assert_ok(fake_read(&f.base, 1, raw, &label, NULL));
    for (uint64_t id = 0; id < 100; id++) {
        transform_apply(&a, &f.base, raw, id, x);
        transform_apply(&b, &f.base, raw, id, y);
        assert_memory_equal(x, y, sizeof x);
        transform_apply(&c, &f.base, raw, id, y);
        differ += memcmp(x, y, sizeof x) != 0;
        transform_apply(&still, &f.base, raw, id, y);
        assert_memory_equal(y, raw, sizeof y);
    }
    assert_true(differ > 80);
    setup_free(&s);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *says;
    } wrong[] = {
        {"{set: digits, augment: [flop]}", "no such augmentation"},
        {"{set: digits, augment: [flip, flip]}", "twice"},
        {"{set: digits, augment: [{crop: 4}, {crop: 4}]}", "twice"},
        {"{set: digits, augment: [{crop: 0}]}", "from 1 to"},
        {"{set: digits, augment: [{crop: 65}]}", "from 1 to"},
        {"{set: digits, augment: [{crop: [4]}]}", "from 1 to"},
        {"{set: digits, augment: [{crop: 4, flip: 1}]}", "no such augmentation"},
        {"{set: digits, augment: [[flip]]}", "no such augmentation"},
        {"{set: digits, augment: [{flip: 1}]}", "takes no value"},
        {"{set: digits, augment: [crop]}", "from 1 to"},
        {"{set: digits, augment: [{crop: 4}, random_resized_crop]}", "give one"},
        {"{set: digits, augment: [random_resized_crop, random_resized_crop]}", "twice"},
        {"{set: digits, augment: [{random_resized_crop: 3}]}", "takes {scale"},
        {"{set: digits, augment: [{random_resized_crop: {size: 3}}]}", "takes {scale"},
        {"{set: digits, augment: [{random_resized_crop: {scale: [0.5, 0.2]}}]}", "two numbers"},
        {"{set: digits, augment: [{random_resized_crop: {scale: [0, 1]}}]}", "two numbers"},
        {"{set: digits, augment: [{random_resized_crop: {ratio: 2}}]}", "two numbers"},
        {"{set: digits, augment: [{jitter: {hue: 0.1}}]}", "jitter takes"},
        {"{set: digits, augment: [{jitter: -1}]}", "jitter takes"},
        {"{set: digits, augment: [jitter]}", "jitter takes"},
        {"{set: digits, augment: [{jitter: 1}, {jitter: 1}]}", "twice"},
        {"{set: digits, augment: [{mixup: 0}]}", "mixup takes the alpha"},
        {"{set: digits, augment: [{cutmix: x}]}", "cutmix takes the alpha"},
        {"{set: digits, augment: [mixup, {mixup: 1}]}", "mixup appears twice"},
        {"{set: digits, normalize: on}", "auto, off or"},
        {"{set: digits, normalize: [1, 2]}", "auto, off or"},
        {"{set: digits, normalize: {mean: 1}}", "auto, off or"},
        {"{set: digits, normalize: {mean: 1, std: 1, max: 1}}", "auto, off or"},
        {"{set: digits, normalize: {mean: [1, 2], std: 1}}", "mean has 2"},
        {"{set: digits, normalize: {mean: x, std: 1}}", "a number or a list"},
        {"{set: digits, normalize: {mean: [], std: 1}}", "1 to 1024"},
        {"{set: digits, normalize: {mean: 0, std: 0}}", "out of range"},
        {"{set: digits, normalize: {mean: 0, std: -1}}", "out of range"},
        {"{set: digits, normalize: {mean: [[1]], std: 1}}", "a number or a list"},
        {"{set: digits, limit: -1}", "limit"},
        {"{set: digits, workers: 100}", "workers"},
        {"{set: nonesuch}", "nonesuch"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct setup s;
        if (setup_try(&s, wrong[i].yaml)) fail_msg("%s is taken", wrong[i].yaml);
        const char *text = config_errors_text(s.errors, s.pool);
        if (!strstr(text, wrong[i].says) || !strstr(text, "test.yaml:1:")) fail_msg("%s: %s", wrong[i].yaml, text);
        assert_int_equal(config_errors_count(s.errors), 1);
        setup_free(&s);
    }
}

static void test_needs_pictures(void **state) {
    (void)state;
    struct fake f = fake_set(3, SAMPLE_F32, (struct shape){1, {4}});
    struct normalization n = {.channels = 1, .scale = {1}};
    struct setup s;
    struct transform t;
    setup_make(&s, "{set: digits, augment: [flip]}");
    assert_fails(ERR_CONFIG, transform_init(&t, &f.base, &s.config, &n, true, 1));
    assert_ok(transform_init(&t, &f.base, &s.config, &n, false, 1));
    setup_free(&s);
}

/* ---- colours ---- */
static const char jittered[] = "{set: digits, normalize: off, augment: [{jitter: {%s}}]}";

static struct transform transform_of(const char *yaml, const struct dataset *d) {
    struct setup s;
    struct transform t;
    struct normalization n = {.channels = 1, .scale = {1}};
    setup_make(&s, yaml);
    assert_ok(transform_init(&t, d, &s.config, &n, true, 5));
    setup_free(&s);
    return t;
}

static float clip(float v) {
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* With one kind alone the factor can be told from one value, and must then explain all others. */
static void test_jitter(void **state) {
    (void)state;
    static const char *const kinds[] = {"brightness: 0.5", "contrast: 0.5", "saturation: 0.5"};
    enum { N = 25 };
    struct fake f = fake_set(3, SAMPLE_U8, (struct shape){3, {3, 5, 5}});
    uint8_t raw[3 * N];
    float out[3 * N];
    char yaml[128];
    for (int i = 0; i < 3 * N; i++) raw[i] = (uint8_t)(60 + i * 37 % 100);
    for (int kind = 0; kind < 3; kind++) {
        float low = 9, high = 0;
        snprintf(yaml, sizeof yaml, jittered, kinds[kind]);
        struct transform t = transform_of(yaml, &f.base);
        for (uint64_t id = 0; id < 300; id++) {
            float grey[N], mean = 0, factor;
            for (int i = 0; i < N; i++) {
                grey[i] = 0.299f * raw[i] + 0.587f * raw[N + i] + 0.114f * raw[2 * N + i];
                mean += grey[i] / N;
            }
            transform_apply(&t, &f.base, raw, id, out);
            float with = kind == 0 ? 0 : kind == 1 ? mean : grey[2];
            factor = (out[2] - with) / (raw[2] - with);
            for (int i = 0; i < 3 * N; i++) {
                with = kind == 0 ? 0 : kind == 1 ? mean : grey[i % N];
                assert_float_equal(out[i], clip(with + (raw[i] - with) * factor), 0.02);
            }
            low = factor < low ? factor : low;
            high = factor > high ? factor : high;
        }
        assert_true(low >= 0.499f && low < 0.52f && high <= 1.501f && high > 1.48f);
    }
}

static void test_jitter_needs_bytes(void **state) {
    (void)state;
    struct normalization n = {.channels = 1, .scale = {1}};
    struct setup s;
    struct transform t;
    setup_make(&s, "{set: digits, augment: [{jitter: 0.4}]}");
    struct fake f = fake_set(3, SAMPLE_F32, (struct shape){3, {3, 4, 4}});
    assert_fails(ERR_CONFIG, transform_init(&t, &f.base, &s.config, &n, true, 1));
    f = fake_set(3, SAMPLE_U8, (struct shape){3, {2, 4, 4}});
    assert_fails(ERR_CONFIG, transform_init(&t, &f.base, &s.config, &n, true, 1));
    setup_free(&s);
}

/* A part of a plane of slope (1, 10) is a plane again: its corners tell where it was cut and how
 * large. */
static void test_resized_crop(void **state) {
    (void)state;
    enum { SIDE = 12 };
    struct fake f = fake_set(3, SAMPLE_U8, (struct shape){3, {1, SIDE, SIDE}});
    uint8_t raw[SIDE * SIDE];
    float out[SIDE * SIDE];
    int flipped = 0;
    for (int i = 0; i < SIDE * SIDE; i++) raw[i] = (uint8_t)(i % SIDE + 10 * (i / SIDE));
    struct transform t =
        transform_of("{set: digits, augment: [flip, {random_resized_crop: {scale: [0.2, 0.5]}}]}", &f.base);
    for (uint64_t id = 0; id < 200; id++) {
        struct visit v = {t.augment.resized_crop, t.key, id};
        struct box b = box_draw(&v, SIDE, SIDE);
        transform_apply(&t, &f.base, raw, id, out);
        bool flip = out[5] > out[6];
        for (int i = 0; i < SIDE * SIDE; i++) {
            int column = flip ? SIDE - 1 - i % SIDE : i % SIDE;
            double x = b.x + (column + 0.5) * b.w / SIDE - 0.5, y = b.y + (i / SIDE + 0.5) * b.h / SIDE - 0.5;
            x = fmin(fmax(x, b.x), b.x + b.w - 1);
            y = fmin(fmax(y, b.y), b.y + b.h - 1);
            assert_float_equal(out[i], x + 10 * y, 1e-3);
        }
        flipped += flip;
    }
    assert_between(flipped, 60, 140);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto),           cmocka_unit_test(test_given),  cmocka_unit_test(test_crop_and_flip),
        cmocka_unit_test(test_wide_crop),      cmocka_unit_test(test_chance), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_needs_pictures), cmocka_unit_test(test_jitter), cmocka_unit_test(test_jitter_needs_bytes),
        cmocka_unit_test(test_resized_crop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
