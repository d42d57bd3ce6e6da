/* Safetensors: what is written is read back, by the letter of the format; hostile and damaged files
 * are refused, quickly. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/save/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pool *pool;
static float a[6] = {1, -2, 3, 4.5f, 0, 6};
static int64_t b[1] = {1ll << 40};
static uint8_t c[3] = {7, 8, 9};
static const struct st_tensor tensors[] = {
    {.name = "layer.weight", .dtype = "F32", .ndim = 2, .dim = {2, 3}, .data = a, .bytes = sizeof a},
    {.name = "step", .dtype = "I64", .ndim = 1, .dim = {1}, .data = b, .bytes = sizeof b},
    {.name = "empty", .dtype = "F32", .ndim = 2, .dim = {0, 4}, .data = a, .bytes = 0},
    {.name = "bytes", .dtype = "U8", .ndim = 1, .dim = {3}, .data = c, .bytes = sizeof c},
    {.name = "scalar", .dtype = "F32", .ndim = 0, .data = a, .bytes = 4},
};
enum { COUNT = sizeof tensors / sizeof *tensors };

static int setup(void **state) {
    (void)state;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static const char *write_sample(uint32_t *crc, int64_t *bytes) {
    const char *path = scratch_path("sample.safetensors");
    static const char *const metadata[][2] = {{"format", "pt"}, {"note", "quotes \" and \\"}, {NULL}};
    unlink(path);
    assert_ok(st_write(path, tensors, COUNT, metadata, crc, bytes));
    return path;
}

static void put_file(const char *path, const void *data, size_t n) {
    unlink(path); /* a file written over another is flushed at once by some file systems: slow */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void test_round_trip(void **state) {
    (void)state;
    uint32_t crc;
    int64_t bytes;
    struct st_file f;
    const char *path = write_sample(&crc, &bytes);
    assert_ok(st_open(path, &f));
    assert_int_equal(f.count, COUNT);
    assert_int_equal(f.data_start % 64, 0);
    assert_string_equal(json_get(f.metadata, "note")->text, "quotes \" and \\");
    for (int i = 0; i < COUNT; i++) {
        const struct st_tensor *t = st_find(&f, tensors[i].name);
        char back[64];
        assert_non_null(t);
        assert_string_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->ndim, tensors[i].ndim);
        assert_memory_equal(t->dim, tensors[i].dim, (size_t)t->ndim * sizeof *t->dim);
        assert_int_equal(t->bytes, tensors[i].bytes);
        assert_true(t->has_crc);
        assert_ok(st_read(&f, t, back));
        assert_memory_equal(back, tensors[i].data, t->bytes);
    }
    assert_null(st_find(&f, "missing"));
    st_close(&f);
    char *text;
    size_t n;
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    assert_int_equal(n, bytes);
    assert_int_equal(crc32c(0, text, n), crc);
}

static void test_write_refuses(void **state) {
    (void)state;
    uint32_t crc;
    int64_t bytes;
    const char *path = write_sample(&crc, &bytes);
    assert_fails(ERR_CREATE, st_write(path, tensors, COUNT, NULL, &crc, &bytes)); /* never over another file */
    assert_fails(ERR_CREATE, st_write(scratch_path("no/where"), tensors, COUNT, NULL, &crc, &bytes));
    struct st_tensor odd = tensors[0];
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    odd.name = name;
    assert_fails(ERR_CREATE, st_write(scratch_path("odd"), &odd, 1, NULL, &crc, &bytes));
    assert_false(file_exists(scratch_path("odd")));
}

/* Opens and reads all of a damaged file; whether that is refused is told, and refused must mean
 * ERR_DATA. */
static bool is_refused(const char *path) {
    struct st_file f;
    enum error err = st_open(path, &f);
    char back[64];
    for (int i = 0; err == ERR_NONE && i < f.count; i++)
        if (f.tensors[i].bytes <= sizeof back) err = st_read(&f, &f.tensors[i], back);
    st_close(&f);
    assert_true(err == ERR_NONE || err == ERR_DATA);
    return err != ERR_NONE;
}

static void test_truncated(void **state) {
    (void)state;
    uint32_t crc;
    int64_t bytes;
    char *text;
    size_t n;
    const char *path = write_sample(&crc, &bytes), *cut = scratch_path("cut");
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    for (size_t k = 0; k < n; k++) {
        put_file(cut, text, k);
        if (!is_refused(cut)) fail_msg("cut to %zu bytes of %zu and accepted", k, n);
    }
    char *longer = pool_alloc(pool, n + 1);
    memcpy(longer, text, n);
    put_file(cut, longer, n + 1);
    assert_true(is_refused(cut));
}

/* Every byte changed in three ways: data and layout are always caught; free text and padding are
 * the manifest's to catch. */
static void test_flipped(void **state) {
    (void)state;
    uint32_t crc;
    int64_t bytes;
    char *text;
    size_t n;
    uint64_t header;
    const char *path = write_sample(&crc, &bytes), *bad = scratch_path("flipped");
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    memcpy(&header, text, 8);
    for (size_t k = 0; k < n; k++)
        for (int way = 0; way < 3; way++) {
            char was = text[k];
            text[k] = (char)(was ^ (way == 0 ? 1 : way == 1 ? 0x80 : 0xFF));
            put_file(bad, text, n);
            bool refused = is_refused(bad);
            if (k >= 8 + header || k < 8) assert_true(refused);
            text[k] = was;
        }
}

/* A file of that header and so many bytes of data. */
static const char *put_hostile(const char *header, size_t header_bytes, size_t data_bytes) {
    const char *path = scratch_path("hostile");
    uint64_t n = header_bytes;
    char *whole = calloc(1, 8 + header_bytes + data_bytes);
    assert_non_null(whole);
    memcpy(whole, &n, 8);
    memcpy(whole + 8, header, header_bytes);
    put_file(path, whole, 8 + header_bytes + data_bytes);
    free(whole);
    return path;
}

#define T4(name, shape, begin, end)                                                                                    \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void test_hostile_headers(void **state) {
    (void)state;
    static const struct {
        const char *what, *header;
        size_t data;
        bool fine;
    } cases[] = {
        {"a good one", "{" T4("a", "[1]", "0", "4") "," T4("b", "[2]", "4", "12") "}", 12, true},
        {"any order", "{" T4("b", "[2]", "4", "12") "," T4("a", "[1]", "0", "4") "}  ", 12, true},
        {"no tensors", "{}", 0, true},
        {"a path as a name is only a name", "{" T4("../../etc/passwd", "[1]", "0", "4") "}", 4, true},
        {"empty tensors", "{" T4("a", "[0]", "0", "0") "," T4("b", "[1]", "0", "4") "," T4("c", "[0]", "4", "4") "}", 4,
         true},
        {"an overlap", "{" T4("a", "[2]", "0", "8") "," T4("b", "[2]", "4", "12") "}", 12, false},
        {"the same bytes twice", "{" T4("a", "[1]", "0", "4") "," T4("b", "[1]", "0", "4") "}", 4, false},
        {"a hole", "{" T4("a", "[1]", "0", "4") "," T4("b", "[1]", "8", "12") "}", 12, false},
        {"a hole at the start", "{" T4("a", "[1]", "4", "8") "}", 8, false},
        {"bytes behind the last", "{" T4("a", "[1]", "0", "4") "}", 8, false},
        {"past the end", "{" T4("a", "[2]", "0", "8") "}", 4, false},
        {"offsets reversed", "{" T4("a", "[1]", "4", "0") "}", 4, false},
        {"negative offsets", "{" T4("a", "[1]", "-4", "0") "}", 4, false},
        {"offsets beyond 64 bits", "{" T4("a", "[1]", "0", "18446744073709551620") "}", 4, false},
        {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, false},
        {"three offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, false},
        {"offsets as text", "{" T4("a", "[1]", "\"0\"", "\"4\"") "}", 4, false},
        {"a real offset", "{" T4("a", "[1]", "0.0", "4.0") "}", 4, false},
        {"shape and bytes differ", "{" T4("a", "[3]", "0", "4") "}", 4, false},
        {"a dimension of 2^63", "{" T4("a", "[9223372036854775808]", "0", "4") "}", 4, false},
        {"2^62 floats", "{" T4("a", "[4611686018427387904]", "0", "0") "}", 0, false},
        {"a product that wraps to 4", "{" T4("a", "[4194305,4194305,211106198978564]", "0", "4") "}", 4, false},
        {"a product that wraps to 0", "{" T4("a", "[4294967296,4294967296]", "0", "0") "}", 0, false},
        {"a negative dimension", "{" T4("a", "[-1]", "0", "4") "}", 4, false},
        {"two negative dimensions", "{" T4("a", "[-1,-1]", "0", "4") "}", 4, false},
        {"five dimensions", "{" T4("a", "[1,1,1,1,1]", "0", "4") "}", 4, false},
        {"the same name twice", "{" T4("a", "[1]", "0", "4") "," T4("a", "[1]", "4", "8") "}", 8, false},
        {"NUL in a name", "{" T4("a\\u0000b", "[1]", "0", "4") "}", 4, false},
        {"a control character in a name", "{" T4("a\\u001b[2J", "[1]", "0", "4") "}", 4, false},
        {"an empty name", "{" T4("", "[1]", "0", "4") "}", 4, false},
        {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, false},
        {"an unknown dtype", "{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, false},
        {"a number as dtype", "{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, false},
        {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4],\"x\":[1]}}", 4, false},
        {"something more", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, false},
        {"a tensor that is a number", "{\"a\":1}", 0, false},
        {"a list", "[]", 0, false},
        {"no JSON", "{]", 0, false},
        {"space before", " {}", 0, false},
        {"text after", "{}x", 0, false},
        {"deep", "{\"a\":{\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]}}", 4, false},
        {"metadata that is a list", "{\"__metadata__\":[]}", 0, false},
        {"metadata with a number", "{\"__metadata__\":{\"a\":1}}", 0, false},
        {"a crc of nothing", "{\"__metadata__\":{\"crc32c/a\":\"00000000\"}}", 0, false},
        {"a crc that is none", "{\"__metadata__\":{\"crc32c/a\":\"-0000001\"}," T4("a", "[1]", "0", "4") "}", 4, false},
        {"a wrong crc", "{\"__metadata__\":{\"crc32c/a\":\"00000000\"}," T4("a", "[1]", "0", "4") "}", 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool refused = is_refused(put_hostile(cases[i].header, strlen(cases[i].header), cases[i].data));
        if (refused == cases[i].fine) fail_msg("%s: %s", cases[i].what, refused ? error_message() : "accepted");
    }
}

static long peak_kilobytes(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss;
}

/* 16 MiB of header, full of values, of nesting, of tensors: refused before they take much memory.
 */
static void test_huge_headers(void **state) {
    (void)state;
    size_t n = 16 << 20;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, '[', n);
    text[0] = '{';
    assert_true(is_refused(put_hostile(text, n, 0)));
    memcpy(text, "{\"a\":", 5);
    for (size_t i = 6; i < n; i++) text[i] = i % 2 ? '1' : ',';
    assert_true(is_refused(put_hostile(text, n, 0)));
    size_t at = (size_t)snprintf(text, n, "{");
    for (int i = 0; i < 100000; i++)
        at += (size_t)snprintf(text + at, n - at, T4("t%d", "[0]", "0", "0") "%s", i, i < 99999 ? "," : "}");
    assert_true(is_refused(put_hostile(text, at, 0)));
    free(text);
#ifndef ENGINE_SANITIZED
    assert_true(peak_kilobytes() < 160 << 10); /* the texts above are 48 MB of it */
#else
    (void)peak_kilobytes;
#endif
}

static void test_header_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 3, 1u << 24, (1u << 24) + 1, 1ull << 40, 1ull << 63, ~0ull};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char file[] = "........{}";
        memcpy(file, &lengths[i], 8);
        put_file(scratch_path("lengths"), file, sizeof file - 1);
        assert_true(is_refused(scratch_path("lengths")));
    }
    struct st_file f;
    assert_fails(ERR_INPUT, st_open(scratch_path("nowhere"), &f));
    assert_fails(ERR_DATA, st_open(scratch_folder(), &f));
    assert_int_equal(mkfifo(scratch_path("fifo"), 0600), 0);
    assert_fails(ERR_DATA, st_open(scratch_path("fifo"), &f)); /* and does not wait */
}

/* What torch.save writes, now and before: code, which is refused with a line of Python that converts it. */
static void test_pickled(void **state) {
    (void)state;
    static const char heads[][42] = {"PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\12\0\0\0w/data.pkl",
                                     "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j"};
    static const char other[42] = "PK\3\4\55\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0a.npy";
    struct st_file f;
    for (int i = 0; i < 2; i++) {
        char want[700];
        const char *path = scratch_path(i ? "old.dots/weights" : "w.pth");
        assert_ok(file_make_folders(scratch_path("old.dots")));
        put_file(path, heads[i], sizeof heads[i]);
        assert_fails(ERR_DATA, st_open(path, &f));
        assert_non_null(strstr(error_message(), "a file of torch.save"));
        snprintf(want, sizeof want, "torch.load('%s',", path);
        assert_non_null(strstr(error_hint(), want));
        snprintf(want, sizeof want, "'%.*s.safetensors'", (int)strlen(path) - (i ? 0 : 4), path);
        assert_non_null(strstr(error_hint(), want));
    }
    put_file(scratch_path("a'b.pth"), heads[0], sizeof heads[0]);
    assert_fails(ERR_DATA, st_open(scratch_path("a'b.pth"), &f));
    assert_non_null(strstr(error_hint(), "torch.load('FILE.pth',")); /* nothing that a shell would run */
    put_file(scratch_path("w.npz"), other, sizeof other);
    assert_fails(ERR_DATA, st_open(scratch_path("w.npz"), &f));
    assert_non_null(strstr(error_message(), "a zip archive"));
    assert_non_null(strstr(error_hint(), "numpy.load"));
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_round_trip),     T(test_write_refuses),   T(test_truncated),
                                       T(test_flipped),        T(test_hostile_headers), T(test_huge_headers),
                                       T(test_header_lengths), T(test_pickled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
