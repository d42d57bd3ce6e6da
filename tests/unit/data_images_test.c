/* Folders of pictures: what the formats decode to, resizing against plain arithmetic, which
 * pictures are whose, and files that lie. */
#include "tests/unit/data_pictures.h"

#include "engine/data/image.h"
#include "engine/data/unreadable.h"

#include <math.h>
#include <unistd.h>

static const char *yaml_of(const char *folder, const char *more) {
    static char yaml[2048];
    snprintf(yaml, sizeof yaml, "{set: images, train: %s%s}", scratch_path(folder), more);
    return yaml;
}

static void check_says(const char *yaml, bool train, enum error expected, const char *says) {
    struct dataset *d;
    assert_fails(expected, set_try(yaml, train, &d));
    if (!strstr(error_message(), says)) fail_msg("%s: %s", yaml, error_message());
}

/* ---- resizing ---- */
/* One channel of the box as PyTorch's antialiased linear interpolation, in plain doubles. */
static double plain_pixel(const uint8_t *p, int width, int height, struct box b, int size, int ox, int oy, int c) {
    double sx = b.w / size, sy = b.h / size, rx = sx < 1 ? 1 : sx, ry = sy < 1 ? 1 : sy;
    double cx = b.x + (ox + 0.5) * sx, cy = b.y + (oy + 0.5) * sy, sum = 0, all = 0;
    for (int y = (int)b.y; y < b.y + b.h && y < height; y++)
        for (int x = (int)b.x; x < b.x + b.w && x < width; x++) {
            double wx = 1 - fabs((x + 0.5 - cx) / rx), wy = 1 - fabs((y + 0.5 - cy) / ry);
            if (wx <= 0 || wy <= 0) continue;
            sum += wx * wy * p[(y * width + x) * 3 + c];
            all += wx * wy;
        }
    return sum / all;
}

static void test_resize(void **state) {
    (void)state;
    enum { W = 61, H = 47 };
    static uint8_t p[W * H * 3], out[3 * 90 * 90];
    static const struct {
        struct box box;
        int size;
    } cases[] = {{{0, 0, W, H}, 10},  {{7, 5, 30, 30}, 30}, {{3, 2, 11, 40}, 90}, {{0.5, 0.25, 46.5, 46.5}, 13},
                 {{60, 46, 1, 1}, 4}, {{0, 0, W, H}, 1}};
    struct resizer r = {0};
    for (int i = 0; i < W * H * 3; i++) p[i] = (uint8_t)(i * 7919 % 251);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int n = cases[k].size;
        assert_ok(picture_resize(&r, p, W, H, &(struct view){.box = cases[k].box, .size = n}, out));
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < n * n; i++) {
                double v = plain_pixel(p, W, H, cases[k].box, n, i % n, i / n, c);
                assert_float_equal(out[c * n * n + i], v, 1.1); /* two roundings */
            }
    }
    resizer_fini(&r);
}

/* Digests of what torchvision 0.29 on Pillow 13 gave (transforms.Resize and CenterCrop, functional.resized_crop), as
 * zlib.crc32 of the planes. Pillow 13 takes rows first where a part gets lower much more than narrower, which none of
 * these does. */
static void test_torchvision(void **state) {
    (void)state;
    static const struct {
        int width, height, resize, size;
        uint32_t crc;
    } middles[] = {{61, 47, 32, 28, 0x203cefb8},   {47, 61, 32, 28, 0x1a660a25}, {61, 47, 16, 13, 0x3585d94c},
                   {300, 200, 32, 32, 0xcfaf806d}, {40, 40, 40, 35, 0xcc2e5a47}, {20, 31, 64, 56, 0xa987002d},
                   {33, 32, 37, 32, 0x7dff7bef},   {61, 47, 8, 1, 0x435131f4},   {1, 50, 4, 3, 0xe618fc7f}};
    static const struct {
        struct box box;
        int size;
        uint32_t crc;
    } parts[] = {{{7, 5, 30, 30}, 30, 0x33a0ea0f},
                 {{3, 2, 40, 11}, 24, 0xaae6222c},
                 {{0, 0, 61, 47}, 10, 0xd0b8d78a},
                 {{60, 46, 1, 1}, 4, 0xbb6626e8}};
    static uint8_t p[300 * 200 * 3], out[3 * 56 * 56];
    struct resizer r = {0};
    for (size_t i = 0; i < sizeof p; i++) p[i] = (uint8_t)(i * 7919 % 251);
    for (size_t i = 0; i < sizeof middles / sizeof *middles; i++) {
        int size = middles[i].size, w = middles[i].width, h = middles[i].height;
        struct view v = view_middle(RESAMPLE_TORCHVISION, (double)size / middles[i].resize, size, w, h);
        assert_ok(picture_resize_exactly(&r, p, w, &v, out));
        assert_int_equal(crc32(0, out, (unsigned)(3 * size * size)), middles[i].crc);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct view v = view_part(RESAMPLE_TORCHVISION, parts[i].box, parts[i].size);
        assert_ok(picture_resize_exactly(&r, p, 61, &v, out));
        assert_int_equal(crc32(0, out, (unsigned)(3 * v.size * v.size)), parts[i].crc);
    }
    resizer_fini(&r);
}

/* The same of files, by the set and by a network that was trained on it. */
static void test_torchvision_files(void **state) {
    (void)state;
    static const uint32_t crc[2] = {0xc5999177, 0xd9cd9127};
    uint8_t x[3 * 28 * 28];
    int32_t label;
    float none;
    folder_put("exact");
    for (int k = 1; k <= 2; k++) {
        char name[64];
        snprintf(name, sizeof name, "exact/%d", k);
        folder_put(name);
        snprintf(name, sizeof name, "exact/%d/a.png", k);
        png_put(name, k, k == 1 ? 50 : 31, k == 1 ? 40 : 77, PNG_COLOR_TYPE_RGB, 8);
    }
    char yaml[700];
    snprintf(yaml, sizeof yaml, ", val: %s, size: 28, resample: torchvision", scratch_path("exact"));
    struct dataset *d = set_open(yaml_of("exact", yaml), false), *one;
    for (int k = 0; k < 2; k++) {
        assert_ok(d->ops->read(d, k, x, &label, NULL));
        assert_int_equal(crc32(0, x, sizeof x), crc[k]);
    }
    assert_ok(dataset_samples(scratch_path("exact/2/a.png"), d, &one));
    assert_ok(one->ops->read(one, 0, x, &label, &none));
    assert_int_equal(crc32(0, x, sizeof x), crc[1]);
    dataset_close(one);
    struct dataset *other = set_open(yaml_of("exact", ", val: 1, size: 28, resize: 32"), true);
    assert_fails(ERR_CONFIG, dataset_check_like(other, d));
    assert_non_null(strstr(error_message(), "data.resample"));
    dataset_close(other);
    dataset_close(d);
}

/* ---- formats ---- */
static enum error box_decode(struct image *im, struct box box, int size, uint8_t *out) {
    struct view v = view_part(RESAMPLE_ENGINE, box, size);
    return image_decode(im, &v, out);
}

static double picture_error(struct image *im, const char *name, int seed, int width, int height, bool grey) {
    static uint8_t out[3 * 64 * 64];
    int w, h;
    double sum = 0;
    assert_ok(image_probe(scratch_path(name), &w, &h));
    assert_int_equal(w, width);
    assert_int_equal(h, height);
    assert_ok(image_read(im, scratch_path(name), &w, &h));
    assert_int_equal(w, width);
    assert_ok(box_decode(im, (struct box){2, 3, 20, 20}, 20, out));
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 400; i++)
            sum += abs(out[c * 400 + i] - picture_colour(seed, 2 + i % 20, 3 + i / 20, grey ? 0 : c));
    return sum / 1200;
}

static void test_formats(void **state) {
    (void)state;
    struct image *im;
    assert_ok(image_create(&im));
    png_put("rgb.png", 1, 40, 30, PNG_COLOR_TYPE_RGB, 8);
    png_put("rgba.png", 2, 40, 30, PNG_COLOR_TYPE_RGBA, 8);
    png_put("grey.png", 3, 40, 30, PNG_COLOR_TYPE_GRAY, 8);
    png_put("deep.png", 4, 40, 30, PNG_COLOR_TYPE_RGB, 16);
    for (int twice = 0; twice < 2; twice++) { /* one decoder takes them all, in any order */
        assert_true(picture_error(im, "rgb.png", 1, 40, 30, false) == 0);
        assert_true(picture_error(im, "rgba.png", 2, 40, 30, false) == 0);
        assert_true(picture_error(im, "grey.png", 3, 40, 30, true) == 0);
        assert_true(picture_error(im, "deep.png", 4, 40, 30, false) == 0);
        jpeg_put("c.jpg", 5, 44, 36, JPEG_FORM_COLOUR);
        assert_true(picture_error(im, "c.jpg", 5, 44, 36, false) < 12);
        jpeg_put("g.jpg", 6, 44, 36, JPEG_FORM_GREY);
        assert_true(picture_error(im, "g.jpg", 6, 44, 36, true) < 12);
        jpeg_put("p.jpg", 7, 44, 36, JPEG_FORM_PROGRESSIVE);
        assert_true(picture_error(im, "p.jpg", 7, 44, 36, false) < 12);
        jpeg_put("k.jpg", 8, 44, 36, JPEG_FORM_CMYK);
        assert_true(picture_error(im, "k.jpg", 8, 44, 36, false) < 12);
    }
    image_free(im);
}

static void test_palette(void **state) {
    (void)state;
    uint8_t out[3 * 100];
    struct image *im;
    int w, h;
    png_put("pal.png", 1, 10, 10, PNG_COLOR_TYPE_PALETTE, 8);
    assert_ok(image_create(&im));
    assert_ok(image_read(im, scratch_path("pal.png"), &w, &h));
    assert_ok(box_decode(im, (struct box){0, 0, 10, 10}, 10, out));
    for (int i = 0; i < 100; i++) {
        int v = picture_colour(1, i % 10, i / 10, 0);
        assert_int_equal(out[i], v);
        assert_int_equal(out[100 + i], 255 - v);
        assert_int_equal(out[200 + i], v / 2);
    }
    image_free(im);
}

/* A large JPEG decoded small is near what decoding it whole and resizing it gives. */
static void test_scales(void **state) {
    (void)state;
    static uint8_t small[3 * 64 * 64], whole[3 * 512 * 512], pixels[512 * 512 * 3];
    static uint8_t expected[3 * 64 * 64];
    struct image *im;
    struct resizer r = {0};
    int w, h;
    double sum = 0;
    jpeg_put("big.jpg", 3, 512, 512, JPEG_FORM_COLOUR);
    assert_ok(image_create(&im));
    assert_ok(image_read(im, scratch_path("big.jpg"), &w, &h));
    assert_ok(box_decode(im, (struct box){0, 0, 512, 512}, 512, whole));
    for (int i = 0; i < 512 * 512; i++)
        for (int c = 0; c < 3; c++) pixels[i * 3 + c] = whole[c * 512 * 512 + i];
    for (int part = 1; part <= 4; part *= 2) {
        struct box box = {512.0 / 8, 512.0 / 16, 512.0 / part / 2, 512.0 / part / 2};
        assert_ok(image_read(im, scratch_path("big.jpg"), &w, &h));
        assert_ok(box_decode(im, box, 64, small));
        assert_ok(picture_resize(&r, pixels, 512, 512, &(struct view){.box = box, .size = 64}, expected));
        sum = 0;
        for (int i = 0; i < 3 * 64 * 64; i++) sum += abs(small[i] - expected[i]);
        assert_true(sum / (3 * 64 * 64) < 7); /* the picture has edges, and the ways to get
                                                  smaller differ there */
    }
    resizer_fini(&r);
    image_free(im);
}

/* ---- parts of a JPEG ---- */
struct whole { /* what libjpeg makes of a file from its first row on */
    uint8_t pixels[200 * 200 * 4];
    int width, height;
};

static void warning_count(j_common_ptr c, int level) {
    c->err->num_warnings += level < 0;
}

/* Rows [0, last] at some eighths of the size. false: there is damage in them. */
static bool whole_decode(const char *name, int eighths, double last, struct whole *out) {
    static uint8_t bytes[1 << 18];
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr errors;
    j.err = jpeg_std_error(&errors);
    errors.emit_message = warning_count;
    jpeg_create_decompress(&j);
    jpeg_mem_src(&j, bytes, file_get(scratch_path(name), bytes, sizeof bytes));
    jpeg_read_header(&j, TRUE);
    j.out_color_space = j.num_components == 4 ? JCS_CMYK : JCS_RGB;
    j.scale_num = (unsigned)eighths, j.scale_denom = 8;
    jpeg_start_decompress(&j);
    out->width = (int)j.output_width, out->height = (int)j.output_height;
    for (int y = 0; y < out->height && y <= last * out->height; y++) {
        JSAMPROW row = out->pixels + (size_t)y * j.output_width * (size_t)j.output_components;
        jpeg_read_scanlines(&j, &row, 1);
    }
    for (int i = 0; j.num_components == 4 && i < out->width * out->height; i++)
        for (int c = 0; c < 3; c++)
            out->pixels[3 * i + c] = (uint8_t)(out->pixels[4 * i + c] * out->pixels[4 * i + 3] / 255);
    bool good = errors.num_warnings == 0;
    jpeg_destroy_decompress(&j);
    return good;
}

/* What v shows of a picture of width x height that was decoded whole. */
static void whole_show(const struct whole *p, struct view v, int width, int height, uint8_t *out) {
    struct resizer r = {0};
    double x = (double)p->width / width, y = (double)p->height / height;
    v.box = (struct box){v.box.x * x, v.box.y * y, v.box.w * x, v.box.h * y};
    int first = (int)v.box.y;
    const uint8_t *from = p->pixels + (size_t)first * (size_t)p->width * 3;
    v.box.y -= first;
    assert_ok(v.by == RESAMPLE_TORCHVISION ? picture_resize_exactly(&r, from, p->width, &v, out)
                                           : picture_resize(&r, from, p->width, p->height - first, &v, out));
    resizer_fini(&r);
}

/* Parts of one file: the bytes of a part of the whole, or an error where rows down to its last are damaged. */
static void parts_check(struct image *im, const char *name, int parts, int bad[2]) {
    static struct whole whole;
    static uint8_t got[3 * 60 * 60], expected[sizeof got];
    struct visit visit = {{true, {0.01, 1}, {0.2, 5}}, rng_key(1, RNG_AUGMENT), 0};
    for (; visit.id < (uint64_t)parts; visit.id++) {
        int w, h, eighths = 8, size = visit.id % 3 == 0 ? 60 : 12;
        assert_ok(image_read(im, scratch_path(name), &w, &h));
        enum resample by = visit.id % 5 ? RESAMPLE_ENGINE : RESAMPLE_TORCHVISION;
        struct view v = view_part(by, box_draw(&visit, w, h), size);
        double side = v.box.w < v.box.h ? v.box.w : v.box.h;
        while (by == RESAMPLE_ENGINE && eighths > 1 && side * eighths / 16 >= size) eighths /= 2;
        bool good = whole_decode(name, eighths, (v.box.y + v.box.h) / h, &whole);
        enum error err = image_decode(im, &v, got);
        bad[!good]++;
        if (err != (good ? ERR_NONE : ERR_DATA)) fail_msg("%s, part %d: error %d", name, (int)visit.id, err);
        if (!good) continue;
        whole_show(&whole, v, w, h, expected);
        assert_memory_equal(got, expected, (size_t)(3 * size * size));
    }
}

static void test_parts_of_jpegs(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16];
    struct image *im;
    int bad[2] = {0, 0};
    assert_ok(image_create(&im));
    for (int form = JPEG_FORM_COLOUR; form <= JPEG_FORM_COARSE; form++) {
        jpeg_put("part.jpg", form, 197 - 5 * form, 150 + 7 * form, (enum jpeg_form)form);
        parts_check(im, "part.jpg", 300, bad);
    }
    assert_int_equal(bad[1], 0);
    jpeg_put("part.jpg", 1, 190, 170, JPEG_FORM_COLOUR);
    size_t n = file_get(scratch_path("part.jpg"), bytes, sizeof bytes);
    file_put("part.jpg", bytes, n * 6 / 10);
    parts_check(im, "part.jpg", 300, bad);
    assert_true(bad[1] > 100 && bad[1] < 290);
    image_free(im);
}

/* ---- folders ---- */
static void test_classes(void **state) {
    (void)state;
    static uint8_t x[3 * 64];
    int32_t label;
    char name[64];
    folder_put("set");
    folder_put("set/train");
    folder_put("set/val");
    for (int k = 2; k >= 0; k--) {
        snprintf(name, sizeof name, "set/train/%c", "acb"[k]);
        folder_put(name);
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "set/train/%c/%d.png", "acb"[k], i);
            png_put(name, 10 * k + i, 8, 8, PNG_COLOR_TYPE_RGB, 8);
        }
    }
    folder_put("set/val/c");
    png_put("set/val/c/only.png", 5, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    file_put("set/train/a/notes.txt", "no picture", 10);
    file_put("set/train/README", "no folder", 9);
    struct dataset *train = set_open(yaml_of("set", ", size: 8, resize: 8"), true),
                   *val = set_open(yaml_of("set", ", size: 8"), false);
    assert_int_equal(train->classes, 3);
    assert_int_equal(train->size, 12);
    for (int i = 0; i < 12; i++) {
        assert_ok(train->ops->read(train, i, x, &label, NULL));
        assert_int_equal(label, i / 4);
        assert_int_equal(x[3], picture_colour(10 * (i / 4 == 0 ? 0 : 3 - i / 4) + i % 4, 3, 0, 0));
    }
    assert_int_equal(val->classes, 3);
    assert_int_equal(val->size, 1);
    assert_ok(val->ops->read(val, 0, x, &label, NULL));
    assert_int_equal(label, 2);
    dataset_close(train);
    dataset_close(val);
    /* without a folder of its own, every class gives its share, and none is in both */
    train = set_open(yaml_of("set/train", ", size: 8, val: 25%"), true);
    val = set_open(yaml_of("set/train", ", size: 8, val: 25%"), false);
    assert_int_equal(train->size, 9);
    assert_int_equal(val->size, 3);
    for (int i = 0; i < 3; i++) {
        assert_ok(val->ops->read(val, i, x, &label, NULL));
        assert_int_equal(label, i);
    }
    dataset_close(train);
    dataset_close(val);
}

static void test_refused(void **state) {
    (void)state;
    check_says("{set: images}", true, ERR_CONFIG, "data.train is missing");
    folder_put("f");
    check_says(yaml_of("f", ""), true, ERR_DATA, "holds no folders");
    folder_put("f/a");
    check_says(yaml_of("f", ""), true, ERR_DATA, "f/a holds no pictures");
    png_put("f/a/1.png", 1, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    check_says(yaml_of("f", ""), true, ERR_CONFIG, "holding out 10%");
    png_put("f/a/2.png", 2, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    dataset_close(set_open(yaml_of("f", ", val: 1"), true));
    check_says(yaml_of("f", ", val: 1, size: 64, resize: 63"), true, ERR_CONFIG, "data.resize");
    check_says(yaml_of("f", ", val: /nonesuch"), false, ERR_INPUT, "no folder /nonesuch");
    folder_put("g");
    folder_put("g/zzz");
    char more[1024];
    snprintf(more, sizeof more, ", val: %s", scratch_path("g"));
    check_says(yaml_of("f", more), false, ERR_DATA, "g/zzz is not a class");
    folder_put("f/b");
    check_says(yaml_of("f", ", val: 1"), true, ERR_DATA, "f/b holds no pictures");
    png_put("f/b/1.jpg", 2, 20, 20, PNG_COLOR_TYPE_RGB, 8); /* what it is counts, not its name */
    dataset_close(set_open(yaml_of("f", ", val: 1"), true));
    folder_put("f/b/2.png");
    check_says(yaml_of("f", ", val: 1"), false, ERR_INPUT, "f/b/2.png is a folder, not a file");
}

/* Each of these, among good ones, is named when the set is opened. */
static void test_lies(void **state) {
    (void)state;
    static const uint8_t bomb[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xea\x60\0\0\xea\x60\x08\2\0\0\0    ",
                         nothing[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\5\x08\2\0\0\0    ",
                         wide[] = "\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\3\1\x11\0\2\x11\1\3\x11\1        ",
                         chain[] = "\xff\xd8\xff\xe0\xff\xff                                        ",
                         gif[] = "GIF89a                                            ";
    static const struct {
        const uint8_t *bytes;
        size_t n;
        const char *says;
    } lies[] = {{bomb, sizeof bomb, "60000 x 60000"},      {nothing, sizeof nothing, "0 x 5"},
                {wide, sizeof wide, "65535 x 65535"},      {chain, sizeof chain, "damaged or cut off"},
                {gif, sizeof gif, "neither JPEG nor PNG"}, {bomb, 20, "neither JPEG nor PNG"},
                {bomb, 0, "neither JPEG nor PNG"}};
    folder_put("l");
    folder_put("l/a");
    png_put("l/a/1.png", 1, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    png_put("l/a/3.png", 3, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    png_put("l/a/4.png", 3, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        file_put("l/a/2.png", lies[i].bytes, lies[i].n);
        check_says(yaml_of("l", ", val: 1"), true, ERR_DATA, lies[i].says);
        assert_non_null(strstr(error_message(), "l/a/2.png"));
    }
}

/* A picture whose header is fine and whose body is cut off, or is not there any more: the visit
 * fails by name, the others go on. */
static void test_late(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16], x[3 * 32 * 32];
    int32_t label;
    folder_put("late");
    folder_put("late/a");
    jpeg_put("late/a/1.jpg", 1, 200, 200, JPEG_FORM_COLOUR);
    png_put("late/a/2.png", 2, 200, 200, PNG_COLOR_TYPE_RGB, 8);
    png_put("late/a/3.png", 3, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    png_put("late/a/4.png", 4, 20, 20, PNG_COLOR_TYPE_RGB, 8);
    static const char *const cut[] = {"late/a/1.jpg", "late/a/2.png"};
    for (int i = 0; i < 2; i++) {
        size_t n = file_get(scratch_path(cut[i]), bytes, sizeof bytes);
        file_put(cut[i], bytes, n / 2);
    }
    struct dataset *d = set_open(yaml_of("late", ", val: 1, size: 32"), true);
    assert_int_equal(d->size, 3);
    for (int i = 0; i < 2; i++) {
        assert_fails(ERR_DATA, d->ops->read(d, i, x, &label, NULL));
        assert_non_null(strstr(error_message(), cut[i]));
        assert_ok(d->ops->read(d, 2, x, &label, NULL));
    }
    assert_int_equal(unlink(scratch_path("late/a/3.png")), 0);
    assert_fails(ERR_INPUT, d->ops->read(d, 2, x, &label, NULL));
    assert_non_null(strstr(error_message(), "late/a/3.png"));
    dataset_close(d);
}

/* Cuts a file to this share of its bytes. */
static void file_cut(const char *name, double share) {
    static uint8_t bytes[1 << 16];
    size_t n = file_get(scratch_path(name), bytes, sizeof bytes);
    file_put(name, bytes, (size_t)((double)n * share));
}

/* Two folders of ten pictures: in 'holes' some cannot be read, in 'whole' these are not there. */
static void holes_put(const char *folder, bool bad) {
    char name[64];
    folder_put(folder);
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "%s/%c", folder, i < 5 ? 'a' : 'b');
        if (i % 5 == 0) folder_put(name);
        snprintf(name, sizeof name, "%s/%c/%d.jpg", folder, i < 5 ? 'a' : 'b', i);
        if (bad || (i != 1 && i != 4 && i != 8)) jpeg_put(name, i, 96, 120, JPEG_FORM_COLOUR);
        if (bad && i == 1) file_cut(name, 0.97); /* only what lies below the middle is missing */
        if (bad && i == 4) file_put(name, "no picture at all, but long enough", 34);
        if (bad && i == 8) file_cut(name, 0.5);
    }
}

/* With on_error: skip the set is that of a folder without the files that cannot be read, in both parts and for a
 * network that is measured; they are named, and looked for once. */
static void test_skip(void **state) {
    (void)state;
    static uint8_t x[2][3 * 16 * 16];
    int32_t label[2];
    const struct unreadable *u = NULL;
    holes_put("holes", true);
    holes_put("whole", false);
    char own[1024];
    snprintf(own, sizeof own, ", val: %s", scratch_path("holes"));
    check_says(yaml_of("holes", own), true, ERR_DATA, "holes/a/4.jpg");
    assert_non_null(strstr(error_hint(), "data.on_error: skip"));
    for (int train = 0; train < 2; train++) {
        struct dataset *skips = set_open(yaml_of("holes", ", val: 2, size: 16, on_error: skip"), train),
                       *whole = set_open(yaml_of("whole", ", val: 2, size: 16"), train);
        assert_int_equal(skips->size, whole->size);
        for (int64_t i = 0; i < whole->size; i++) {
            assert_ok(skips->ops->read(skips, i, x[0], &label[0], NULL));
            assert_ok(whole->ops->read(whole, i, x[1], &label[1], NULL));
            assert_memory_equal(x[0], x[1], sizeof x[0]);
            assert_int_equal(label[0], label[1]);
        }
        assert_null(whole->unreadable);
        assert_null(whole->note);
        assert_true(!u || u == skips->unreadable);
        u = skips->unreadable;
        static const char *const names[] = {"holes/a/1.jpg: ", "holes/a/4.jpg: ", "holes/b/8.jpg: "};
        assert_int_equal(u->count, 3);
        for (int i = 0; i < 3; i++) {
            assert_non_null(strstr(u->sample[i].why, names[i]));
            assert_non_null(strstr(skips->note, names[i]));
        }
        assert_non_null(strstr(skips->note, "3 of 10 pictures cannot be read and are skipped"));
        dataset_close(skips);
        dataset_close(whole);
    }
    jpeg_put("holes/a/4.jpg", 4, 100, 100, JPEG_FORM_COLOUR); /* who mends a file is believed */
    struct dataset *d = set_open(yaml_of("holes", ", val: 2, size: 16, on_error: skip"), true);
    assert_int_equal(d->unreadable->count, 2);
    assert_int_equal(u->count, 3);
    dataset_close(d);
}

/* A class needs a picture; a validation folder needs one in all. */
static void test_skip_all(void **state) {
    (void)state;
    char more[1024];
    holes_put("empty", true);
    for (int i = 5; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "empty/b/%d.jpg", i);
        file_cut(name, 0.4);
    }
    check_says(yaml_of("empty", ", val: 1, on_error: skip"), true, ERR_DATA, "empty/b: none of its pictures");
    snprintf(more, sizeof more, ", val: %s, size: 8, on_error: skip", scratch_path("empty"));
    struct dataset *d = set_open(yaml_of("whole", more), false);
    assert_int_equal(d->size, 3);
    assert_int_equal(d->unreadable->count, 7);
    dataset_close(d);
}

/* A progressive JPEG whose last scan is there again and again: each costs the whole picture. */
static void test_scans(void **state) {
    (void)state;
    static uint8_t bytes[1 << 16], bomb[1 << 18];
    uint8_t x[3 * 16 * 16];
    struct image *im;
    int w, h;
    jpeg_put("scans.jpg", 1, 64, 64, JPEG_FORM_PROGRESSIVE);
    size_t n = file_get(scratch_path("scans.jpg"), bytes, sizeof bytes), last = n - 2;
    while (!(bytes[last] == 0xff && bytes[last + 1] == 0xda)) last--;
    memcpy(bomb, bytes, n - 2);
    size_t total = n - 2, scan = n - 2 - last;
    for (int i = 0; i < 300; i++, total += scan) memcpy(bomb + total, bytes + last, scan);
    memcpy(bomb + total, "\xff\xd9", 2);
    assert_true(total + 2 < sizeof bomb);
    file_put("scans.jpg", bomb, total + 2);
    assert_ok(image_create(&im));
    assert_ok(image_read(im, scratch_path("scans.jpg"), &w, &h));
    assert_fails(ERR_DATA, box_decode(im, (struct box){0, 0, 64, 64}, 16, x));
    assert_non_null(strstr(error_message(), "scans"));
    image_free(im);
}

/* ---- parts by chance ---- */
static void test_parts(void **state) {
    (void)state;
    struct visit v = {{true, {0.08, 1}, {3.0 / 4, 4.0 / 3}}, rng_key(3, RNG_AUGMENT), 0};
    double area = 0;
    int kinds = 0;
    for (v.id = 0; v.id < 40000; v.id++) {
        struct box b = box_draw(&v, 500, 375), again = box_draw(&v, 500, 375);
        double part = b.w * b.h / (500 * 375), shape = b.w / b.h;
        assert_memory_equal(&b, &again, sizeof b);
        assert_true(b.x >= 0 && b.y >= 0 && b.x + b.w <= 500 && b.y + b.h <= 375);
        assert_true(b.x == floor(b.x) && b.w == floor(b.w) && b.h == floor(b.h));
        assert_true(part > 0.075 && part <= 1 && shape > 0.73 && shape < 1.36);
        area += part;
        kinds += b.x > 200;
    }
    assert_true(fabs(area / 40000 - 0.433) < 0.005); /* what PyTorch's comes to */
    assert_true(kinds > 4000);
    struct box b = box_draw(&v, 3000, 10); /* no part fits: the middle, as wide as is allowed */
    assert_true(b.h == 10 && b.w == 13 && b.y == 0 && b.x == 1493);
}

/* The same visit gives the same bytes from any thread, another visit another part; training and
 * validation go through the loader. */
static void test_loader(void **state) {
    (void)state;
    static float first[2][6][3 * 16 * 16];
    struct setup s;
    char name[64];
    folder_put("t");
    folder_put("t/a");
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "t/a/%d.jpg", i);
        jpeg_put(name, i, 90, 60, JPEG_FORM_COLOUR);
    }
    const char *yaml = yaml_of("t", ", size: 16, val: 1, augment: [flip, random_resized_crop]");
    setup_make(&s, yaml);
    struct dataset *d = set_open(yaml, true);
    for (int workers = 1; workers <= 4; workers += 3) {
        struct loader *l;
        const struct step_batch *b;
        struct loader_params p = {.data = d,
                                  .config = &s.config,
                                  .sampler = {.size = 6, .batch = 6, .shards = 1, .shuffle = false},
                                  .shards = (int[]){0},
                                  .nshards = 1,
                                  .training = true,
                                  .workers = workers,
                                  .depth = 2};
        assert_ok(loader_open(&p, &l));
        for (int epoch = 0; epoch < 2; epoch++) {
            assert_ok(loader_next(l, &b));
            assert_int_equal(b->shards[0].n, 6);
            if (workers == 1)
                memcpy(first[epoch], b->shards[0].x, sizeof first[epoch]);
            else
                assert_memory_equal(first[epoch], b->shards[0].x, sizeof first[epoch]);
        }
        loader_close(l);
    }
    for (int i = 0; i < 6; i++) assert_memory_not_equal(first[0][i], first[1][i], sizeof first[0][i]);
    dataset_close(d);
    setup_free(&s);
}

/* What is no picture is told by kind and number. */
static void test_what_is_left_out_is_told(void **state) {
    (void)state;
    static const char *const files[] = {"a/x.tiff", "a/y.TIFF", "b/z.tiff",    "b/notes",
                                        "b/n.txt",  ".hidden",  "a/.DS_Store", "loose.jpg"};
    folder_put("odd"), folder_put("odd/a"), folder_put("odd/b"), folder_put("odd/a/more");
    png_put("odd/a/1.png", 1, 9, 9, PNG_COLOR_TYPE_RGB, 8);
    png_put("odd/a/2.PNG", 1, 9, 9, PNG_COLOR_TYPE_RGB, 8);
    png_put("odd/b/1.png", 1, 9, 9, PNG_COLOR_TYPE_RGB, 8);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char name[64];
        snprintf(name, sizeof name, "odd/%s", files[i]);
        file_put(name, "x", 1);
    }
    struct dataset *d = set_open(yaml_of("odd", ", val: 1, size: 8"), true);
    const char *told = d->note;
    assert_non_null(told);
    assert_non_null(strstr(told, "odd: left out"));
    assert_non_null(strstr(told, "3 x .tiff"));
    assert_non_null(strstr(told, "1 x folder"));
    assert_non_null(strstr(told, "1 x other"));
    assert_non_null(strstr(told, "1 x .txt"));
    assert_non_null(strstr(told, "1 x .jpg")); /* beside the folders of the classes */
    assert_null(strstr(told, "DS_Store"));
    dataset_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torchvision),
        cmocka_unit_test(test_torchvision_files),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_what_is_left_out_is_told),
        cmocka_unit_test(test_palette),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_parts_of_jpegs),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_skip_all),
        cmocka_unit_test(test_scans),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_loader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
