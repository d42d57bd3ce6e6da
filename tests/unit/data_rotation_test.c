/* Rotation and erasing: the pixels that torchvision takes, in samples of every kind, and what chance depends on. */
#include "tests/unit/data_fixture.h"

#include "engine/data/transform.h"

#include <math.h>

static struct transform transform_of(const char *augment, const struct dataset *d, struct normalization n) {
    struct setup s;
    struct transform t;
    char yaml[300];
    snprintf(yaml, sizeof yaml, "{set: digits, augment: %s}", augment);
    setup_make(&s, yaml);
    assert_ok(transform_init(&t, d, &s.config, &n, true, 5));
    setup_free(&s);
    return t;
}

/* Digests of what torchvision.transforms.functional.rotate(picture, degrees) gave of PIL pictures (0.29 on Pillow 13),
 * as zlib.crc32 of the bytes. */
static void pixels_are_those_of_torchvision(void **state) {
    (void)state;
    static const struct {
        int width, height;
        double degrees;
        uint32_t crc;
    } known[] = {
        {28, 28, 15, 0xd3688cfe},   {28, 28, -15, 0xd55af216}, {32, 32, 7.3, 0xe45c48ee}, {61, 47, 33.25, 0x950092f9},
        {47, 61, -120, 0x8dad3e34}, {20, 20, 90, 0x9502ef66},  {20, 20, 180, 0x265c261b}, {20, 31, 180, 0x35f71352},
        {20, 20, -90, 0x7fb1259d},  {33, 33, 45, 0x1f97c547},  {8, 5, 0, 0x281371e2},     {224, 224, -11.5, 0x30471403},
    };
    static uint8_t p[224 * 224], out[224 * 224];
    for (size_t i = 0; i < sizeof p; i++) p[i] = (uint8_t)(i * 7919 % 250 + 1);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int w = known[i].width, h = known[i].height;
        struct turn t = turn_make(known[i].degrees, w, h);
        for (int k = 0; k < w * h; k++) {
            int64_t x, y;
            turn_source(&t, k % w, k / w, &x, &y);
            out[k] = x >= 0 && x < w && y >= 0 && y < h ? p[y * w + x] : 0;
        }
        if (crc32(0, out, (unsigned)(w * h)) != known[i].crc) fail_msg("%dx%d by %g", w, h, known[i].degrees);
    }
}

/* A sample is what it is without rotation, then rotated by the angle of the visit; the border is what 'fill' becomes. */
static void check_rotated(struct fake *f, const char *before, const char *with) {
    enum { C = 2, H = 9, W = 7 };
    struct normalization n = {.channels = 2, .mean = {3, 40}, .scale = {0.5f, 0.25f}};
    struct transform plain = transform_of(before, &f->base, n), t = transform_of(with, &f->base, n);
    float a[C * H * W], b[C * H * W], bytes[C * H * W], target;
    int32_t label;
    bool turned = false;
    for (uint64_t id = 0; id < 40; id++) {
        assert_ok(transform_read(&t, &f->base, 1, id, bytes, &label, &target));
        transform_apply(&plain, &f->base, bytes, id, a);
        transform_apply(&t, &f->base, bytes, id, b);
        double degrees = rotation_draw(&t.augment.rotation, t.key, id);
        assert_true(degrees >= -30 && degrees <= 70);
        struct turn turn = turn_make(degrees, W, H);
        for (int k = 0; k < C * H * W; k++) {
            int64_t x, y, c = k / (H * W);
            turn_source(&turn, k % W, k / W % H, &x, &y);
            bool inside = x >= 0 && x < W && y >= 0 && y < H;
            float border = ((float)t.augment.rotation.fill - n.mean[c]) * n.scale[c];
            assert_float_equal(b[k], inside ? a[(c * H + y) * W + x] : border, 1e-5);
            turned = turned || (inside && (x != k % W || y != k / W % H));
        }
    }
    assert_true(turned);
}

static void samples_are_rotated(void **state) {
    (void)state;
    for (int type = SAMPLE_U8; type <= SAMPLE_F32; type++) {
        struct fake f = fake_set(3, type, (struct shape){3, {2, 9, 7}});
        check_rotated(&f, "[]", "[{rotation: 30}]");
        check_rotated(&f, "[flip, {crop: 2}]", "[{rotation: {degrees: [-30, 70], fill: 12}}, flip, {crop: 2}]");
        check_rotated(&f, "[random_resized_crop, flip]", "[random_resized_crop, flip, {rotation: [10, 20]}]");
    }
}

/* torchvision's erase(x, y, x, h, w, value): the part is the value, and nothing else is changed. */
static void parts_are_erased(void **state) {
    (void)state;
    enum { C = 2, H = 30, W = 40, VISITS = 4000 };
    struct fake f = fake_set(3, SAMPLE_F32, (struct shape){3, {C, H, W}});
    struct normalization n = {.channels = 1, .mean = {1}, .scale = {1}};
    struct transform plain = transform_of("[]", &f.base, n), t = transform_of("[{erasing: 0.25}]", &f.base, n);
    static float raw[C * H * W], a[C * H * W], b[C * H * W];
    int erased = 0;
    for (int k = 0; k < C * H * W; k++) raw[k] = (float)(k + 5);
    for (uint64_t id = 0; id < VISITS; id++) {
        struct box box = {0};
        bool is = erasing_draw(&t.augment.erasing, t.key, id, W, H, &box);
        erased += is;
        double area = box.w * box.h / (H * W), shape = box.h / box.w;
        if (is) assert_true(area > 0.012 && area < 0.36 && shape > 0.2 && shape < 4.5);
        if (is) assert_true(box.x >= 0 && box.y >= 0 && box.x + box.w <= W && box.y + box.h <= H);
        if (id > 200) continue;
        transform_apply(&plain, &f.base, raw, id, a);
        transform_apply(&t, &f.base, raw, id, b);
        for (int k = 0; k < C * H * W; k++) {
            int x = k % W, y = k / W % H;
            bool in = is && x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h;
            assert_true(b[k] == (in ? 0 : a[k]));
        }
    }
    assert_float_equal((double)erased / VISITS, 0.25, 0.03); /* four and a half deviations */
    t = transform_of("[{erasing: {p: 1, scale: [0.5, 0.5], ratio: [1, 1], value: -7}}]", &f.base, n);
    transform_apply(&t, &f.base, raw, 1, b);
    int sevens = 0;
    for (int k = 0; k < C * H * W; k++) sevens += b[k] == -7;
    assert_int_equal(sevens, C * 24 * 24); /* round(sqrt(600)) */
    t = transform_of("[{erasing: {p: 1, scale: [1, 1], ratio: [1, 1]}}]", &f.base, n);
    transform_apply(&t, &f.base, raw, 1, b); /* no square as large as the picture fits: as it is */
    transform_apply(&plain, &f.base, raw, 1, a);
    assert_memory_equal(a, b, sizeof a);
}

/* A new augmentation leaves the draws of the others as they were. */
static void other_draws_stay(void **state) {
    (void)state;
    struct fake f = fake_set(3, SAMPLE_U8, (struct shape){3, {3, 6, 6}});
    struct normalization n = {.channels = 1, .scale = {1}};
    struct transform plain = transform_of("[flip, {crop: 1}, {jitter: 0.4}]", &f.base, n);
    struct transform t =
        transform_of("[flip, {crop: 1}, {jitter: 0.4}, {rotation: [0, 0]}, {erasing: {p: 1e-9}}]", &f.base, n);
    uint8_t raw[108];
    float a[108], b[108];
    for (int k = 0; k < 108; k++) raw[k] = (uint8_t)(k * 2);
    for (uint64_t id = 0; id < 50; id++) {
        transform_apply(&plain, &f.base, raw, id, a);
        transform_apply(&t, &f.base, raw, id, b);
        assert_memory_equal(a, b, sizeof a);
    }
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"[rotation]", "rotation takes"},
        {"[{rotation: 181}]", "rotation takes"},
        {"[{rotation: [3, 2]}]", "rotation takes"},
        {"[{rotation: {angle: 3}}]", "rotation takes"},
        {"[{rotation: {degrees: 3, fill: x}}]", "rotation takes"},
        {"[{rotation: {fill: 0}}]", "rotation takes"},
        {"[{rotation: 3}, {rotation: 3}]", "twice"},
        {"[{erasing: 0}]", "erasing takes"},
        {"[{erasing: 1.5}]", "erasing takes"},
        {"[{erasing: {q: 1}}]", "erasing takes"},
        {"[{erasing: {p: [1]}}]", "erasing takes"},
        {"[{erasing: {scale: 0.3}}]", "scale of erasing is a list of two numbers"},
        {"[{erasing: {ratio: [3, 0.3]}}]", "ratio of erasing is a list of two numbers"},
        {"[erasing, erasing]", "twice"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct setup s;
        char yaml[300];
        snprintf(yaml, sizeof yaml, "{set: digits, augment: %s}", wrong[i][0]);
        if (setup_try(&s, yaml)) fail_msg("%s is taken", yaml);
        const char *text = config_errors_text(s.errors, s.pool);
        if (!strstr(text, wrong[i][1]) || config_errors_count(s.errors) != 1) fail_msg("%s: %s", yaml, text);
        setup_free(&s);
    }
    struct fake f = fake_set(3, SAMPLE_F32, (struct shape){1, {4}});
    struct normalization n = {.channels = 1, .scale = {1}};
    static const char *const kinds[] = {"[erasing]", "[{rotation: 5}]"};
    for (int i = 0; i < 2; i++) {
        struct setup s;
        struct transform t;
        char yaml[300];
        snprintf(yaml, sizeof yaml, "{set: digits, augment: %s}", kinds[i]);
        setup_make(&s, yaml);
        assert_fails(ERR_CONFIG, transform_init(&t, &f.base, &s.config, &n, true, 1));
        setup_free(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_torchvision),
        cmocka_unit_test(samples_are_rotated),
        cmocka_unit_test(parts_are_erased),
        cmocka_unit_test(other_draws_stay),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("rotation and erasing", tests, NULL, NULL);
}
