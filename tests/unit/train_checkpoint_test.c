/* Loading checkpoints: exact, all or nothing, never a broken one, and the newest that is whole. */
#include "tests/unit/toy_run.h"

#include "engine/save/checkpoint_impl.h"

#include <math.h>
#include <unistd.h>

static struct pool *pool;
static char ckpt[300];
static const char *const files[] = {"model.safetensors", "optim.safetensors", "state.safetensors", "manifest.json"};

static int setup(void **state) {
    (void)state;
    snprintf(ckpt, sizeof ckpt, "%s", scratch_path("run/ckpt"));
    if (file_remove_tree(ckpt) != ERR_NONE) return -1;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static char *in_step(int64_t step, const char *name) {
    return pool_printf(pool, "%s/step-%09d%s%s", ckpt, (int)step, *name ? "/" : "", name);
}

static void put_file(const char *path, const void *data, size_t n) {
    unlink(path); /* a file written over another is flushed at once by some file systems: slow */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

/* Damages the middle byte of a file. */
static void damage(const char *path) {
    char *text;
    size_t n;
    toy_read(path, &text, &n, pool);
    text[n / 2] ^= 4;
    put_file(path, text, n);
}

static void assert_loads(const char *path, int64_t step, int salt) {
    struct toy t;
    toy_init(&t, 999, 9);
    assert_ok(checkpoint_load(path, &t.view));
    assert_true(toy_is(&t, step, salt));
}

/* Refused as 'expected', nothing touched, and words that name something. */
static void assert_refused(const char *path, enum error expected) {
    struct toy t;
    toy_init(&t, 999, 9);
    assert_fails(expected, checkpoint_load(path, &t.view));
    assert_true(toy_is(&t, 999, 9));
    assert_true(strlen(error_message()) > 10);
}

static void test_round_trip(void **state) {
    (void)state;
    toy_save(ckpt, 12, 3, false);
    assert_loads(in_step(12, ""), 12, 3);
    assert_loads(ckpt, 12, 3);
    assert_loads(scratch_path("run"), 12, 3);
}

/* The header before the parameters belongs to the step, not to the checkpoint. */
static void test_header_is_left_alone(void **state) {
    (void)state;
    struct toy t;
    toy_save(ckpt, 12, 3, false);
    toy_init(&t, 1, 1);
    t.values[HEADER_LOSS] = 5;
    assert_ok(checkpoint_load(ckpt, &t.view));
    assert_true(t.values[HEADER_LOSS] == 5);
}

static void test_newest_valid(void **state) {
    (void)state;
    char *found;
    toy_save(ckpt, 5, 1, false);
    toy_save(ckpt, 10, 2, false);
    toy_save(ckpt, 1000000000, 3, false); /* ten digits: newer, though "1000000000" < "5" as text */
    assert_loads(ckpt, 1000000000, 3);
    damage(in_step(1000000000, "optim.safetensors"));
    assert_loads(ckpt, 10, 2);
    assert_ok(checkpoint_find(scratch_path("run"), NULL, pool, &found));
    assert_string_equal(found, in_step(10, ""));
    damage(in_step(10, "manifest.json"));
    assert_loads(ckpt, 5, 1);
    unlink(in_step(5, "state.safetensors"));
    assert_refused(ckpt, ERR_INPUT);
    assert_fails(ERR_INPUT, checkpoint_find(ckpt, NULL, pool, &found));
}

static void test_nothing_there(void **state) {
    (void)state;
    char *found;
    assert_refused(scratch_path("nowhere"), ERR_INPUT);
    assert_fails(ERR_INPUT, checkpoint_find(scratch_path("nowhere"), NULL, pool, &found));
    assert_ok(file_make_folders(ckpt));
    assert_ok(file_make_folders(pool_printf(pool, "%s/step-12", ckpt))); /* not a name that we write */
    assert_refused(ckpt, ERR_INPUT);
    assert_fails(ERR_INPUT, checkpoint_find(ckpt, NULL, pool, &found));
    assert_refused("/dev/null", ERR_DATA);
}

static void test_every_truncation(void **state) {
    (void)state;
    toy_save(ckpt, 12, 3, false);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text, *path = in_step(12, files[i]);
        size_t n;
        toy_read(path, &text, &n, pool);
        for (size_t cut = 0; cut < n; cut += 64) {
            put_file(path, text, cut);
            assert_refused(in_step(12, ""), ERR_DATA);
        }
        put_file(path, text, n - 1);
        assert_refused(in_step(12, ""), ERR_DATA);
        put_file(path, text, n + 1); /* the NUL that file_read puts there */
        assert_refused(in_step(12, ""), ERR_DATA);
        unlink(path);
        assert_refused(in_step(12, ""), ERR_INPUT);
        put_file(path, text, n);
    }
    assert_loads(in_step(12, ""), 12, 3);
}

static void test_every_flip(void **state) {
    (void)state;
    toy_save(ckpt, 12, 3, false);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *text, *path = in_step(12, files[i]), *step = in_step(12, "");
        size_t n;
        toy_read(path, &text, &n, pool);
        for (size_t k = 0; k < n; k++) {
            text[k] ^= (char)(1 << k % 8);
            put_file(path, text, n);
            assert_refused(step, ERR_DATA);
            text[k] ^= (char)(1 << k % 8);
        }
        put_file(path, text, n);
    }
    assert_loads(in_step(12, ""), 12, 3);
}

/* Files that are whole, but of another save. */
static void test_mixed_up(void **state) {
    (void)state;
    toy_save(ckpt, 12, 3, false);
    toy_save(ckpt, 13, 4, false);
    for (int i = 0; i < 3; i++) {
        char *text, *other;
        size_t n, other_n;
        toy_read(in_step(12, files[i]), &text, &n, pool);
        toy_read(in_step(13, files[i]), &other, &other_n, pool);
        put_file(in_step(12, files[i]), other, other_n);
        assert_refused(in_step(12, ""), ERR_DATA);
        put_file(in_step(12, files[i]), text, n);
    }
    assert_loads(in_step(12, ""), 12, 3);
}

static void assert_misfit(struct toy *t, const char *word) {
    struct toy before = *t;
    assert_fails(ERR_CONFIG, checkpoint_load(ckpt, &t->view));
    if (!strstr(error_message(), word)) fail_msg("'%s' does not say %s", error_message(), word);
    assert_memory_equal(t->values, before.values, sizeof before.values);
    assert_memory_equal(&t->counters, &before.counters, sizeof before.counters);
}

static void test_other_model(void **state) {
    (void)state;
    struct toy t;
    toy_save(ckpt, 12, 3, false);
    toy_init(&t, 1, 1);
    t.params[1].name = "fc.other";
    assert_misfit(&t, "'fc.other'");
    toy_init(&t, 1, 1);
    t.params[0].shape = (struct shape){2, {5, 3}}; /* as many numbers */
    assert_misfit(&t, "3x5");
    toy_init(&t, 1, 1);
    t.model.nbuffers = 1;
    assert_misfit(&t, "'bn.running_var'");
    toy_init(&t, 1, 1);
    t.view.nslots = 1;
    assert_misfit(&t, "exp_avg_sq/");
}

static void test_other_run(void **state) {
    (void)state;
    struct toy t;
    toy_save(ckpt, 12, 3, false);
    toy_init(&t, 1, 1);
    t.view.identity = "model=toy\nbatch=size: 8;shards: 2\nseed=1\n";
    assert_misfit(&t, "batch was 'size: 4;shards: 2' when it was saved and is 'size: 8;shards: 2' now");
    assert_true(*error_hint());
    t.view.identity = "model=toy\nbatch=size: 4;shards: 2\n";
    assert_misfit(&t, "seed was '1' when it was saved and is 'not set' now");
    t.view.identity = "model=toy\nbatch=size: 4;shards: 2\nseed=1\nloss=mse\n";
    assert_misfit(&t, "loss was 'not set' when it was saved and is 'mse' now");
    toy_init(&t, 1, 1);
    t.view.identity = "seed=1\nmodel=toy\nbatch=size: 4;shards: 2"; /* another order is the same run */
    t.view.mode = "dp";
    t.view.devices = 8;
    assert_ok(checkpoint_load(ckpt, &t.view));
    assert_true(toy_is(&t, 12, 3));
    t.view.identity = NULL;
    assert_ok(checkpoint_load(ckpt, &t.view));
}

static void test_keys_of_the_data(void **state) {
    (void)state;
    static const struct {
        const char *identity;
        bool fits;
    } cases[] = {{"data=set: csv;val: 10%;limit: 0\n", true},
                 {"data=set: csv;limit: 0\n", false},
                 {"data=set: csv;val: 10%;limit: 5\n", false},
                 {"data=set: npy;val: 10%;limit: 0\n", false},
                 {"data=set: csv;val: 10%;limit: 0;more: 1\n", false}};
    struct toy t;
    struct saver *s;
    toy_init(&t, 12, 3);
    t.view.identity = "data=set: csv;val: 10%;limit: 0\n";
    assert_ok(saver_open(ckpt, 0, &t.view, &s));
    assert_ok(saver_save(s, false));
    assert_ok(saver_wait(s));
    saver_close(s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        toy_init(&t, 1, 1);
        t.view.identity = cases[i].identity;
        if (cases[i].fits)
            assert_ok(checkpoint_load(ckpt, &t.view));
        else
            assert_misfit(&t, "data was 'set: csv");
    }
}

/* As a version saved it that did not keep the loss of the best: it is not known, and all else is as it was. */
static void test_without_the_loss_of_the_best(void **state) {
    (void)state;
    struct toy t;
    struct st_file f;
    struct manifest m;
    struct st_tensor kept[16];
    static const char *const metadata[][2] = {{"format", "pt"}, {"engine_format", "1"}, {NULL}};
    char *path = in_step(12, "state.safetensors");
    int n = 0;
    toy_save(ckpt, 12, 3, false);
    assert_ok(st_open(path, &f));
    for (int i = 0; i < f.count; i++) {
        if (!strcmp(f.tensors[i].name, "best_loss")) continue;
        assert_true(n < 16);
        kept[n] = f.tensors[i];
        kept[n].data = pool_alloc(pool, kept[n].bytes);
        assert_ok(st_read(&f, &f.tensors[i], kept[n++].data));
    }
    assert_int_equal(n, f.count - 1);
    assert_ok(manifest_read(in_step(12, ""), pool, &m));
    m.preprocessing = NULL;
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(in_step(12, "manifest.json")), 0);
    assert_ok(st_write(path, kept, n, metadata, &m.file[FILE_STATE].crc, &m.file[FILE_STATE].bytes));
    assert_ok(manifest_write(in_step(12, ""), &m));
    st_close(&f);
    toy_init(&t, 999, 9);
    assert_ok(checkpoint_load(ckpt, &t.view));
    assert_true(isnan(t.counters.best_loss));
    t.counters.best_loss = 3.5;
    assert_true(toy_is(&t, 12, 3));
}

/* A .safetensors file gives the weights and leaves the rest. */
static void test_weights_alone(void **state) {
    (void)state;
    struct toy t, saved;
    toy_save(ckpt, 12, 3, false);
    toy_init(&saved, 12, 3);
    toy_init(&t, 1, 1);
    t.view.identity = "another=run\n";
    assert_ok(checkpoint_load(in_step(12, "model.safetensors"), &t.view));
    assert_memory_equal(t.values, saved.values, sizeof t.values);
    assert_memory_equal(t.buffer, saved.buffer, sizeof t.buffer);
    memcpy(t.values, saved.values, 0);
    toy_init(&saved, 1, 1);
    assert_memory_equal(t.slots, saved.slots, sizeof t.slots);
    assert_memory_equal(&t.counters, &saved.counters, sizeof t.counters);
    assert_refused(in_step(12, "optim.safetensors"), ERR_CONFIG);
    damage(in_step(12, "model.safetensors"));
    assert_refused(in_step(12, "model.safetensors"), ERR_DATA);
}

/* PyTorch's files hold one tensor a BatchNorm that nothing here reads. */
static void test_pytorch_extra(void **state) {
    (void)state;
    static float w[4] = {1, 2, 3, 4};
    static int64_t batches = 7;
    struct tensor_info info = {.name = "w", .shape = {1, {4}}, .offset = HEADER_FLOATS, .count = 4};
    struct st_tensor tensors[] = {{"w", "F32", 1, {4}, w, sizeof w, 0, 0, false},
                                  {"bn.num_batches_tracked", "I64", 0, {0}, &batches, 8, 0, 0, false},
                                  {"extra", "F32", 1, {4}, w, sizeof w, 0, 0, false}};
    struct model m = {.nparams = 1, .params = &info, .arena_floats = HEADER_FLOATS + 16};
    float values[HEADER_FLOATS + 16] = {0};
    struct checkpoint_view v = {.model = &m, .values = values};
    uint32_t crc;
    int64_t bytes;
    assert_ok(st_write(scratch_path("torch.safetensors"), tensors, 2, NULL, &crc, &bytes));
    assert_ok(checkpoint_load(scratch_path("torch.safetensors"), &v));
    assert_memory_equal(values + HEADER_FLOATS, w, sizeof w);
    assert_ok(st_write(scratch_path("extra.safetensors"), tensors, 3, NULL, &crc, &bytes));
    assert_fails(ERR_CONFIG, checkpoint_load(scratch_path("extra.safetensors"), &v));
}

/* x86 makes NaNs with a sign, ARM without, and which of two an operation keeps is open. */
static void test_weights_hash_of_nan(void **state) {
    (void)state;
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7fc12345, 0xff800001};
    struct toy t;
    char first[SHA256_TEXT], again[SHA256_TEXT];
    toy_init(&t, 1, 1);
    float *weight = t.values + t.params[3].offset + 1;
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        memcpy(weight, &nans[i], sizeof *weight);
        checkpoint_weights_hash(&t.model, t.values, i ? again : first);
        if (i) assert_string_equal(again, first);
    }
    *weight = -0.0f;
    checkpoint_weights_hash(&t.model, t.values, first);
    *weight = 0;
    checkpoint_weights_hash(&t.model, t.values, again);
    assert_string_not_equal(first, again);
}

/* The hash follows names, not the order in memory, and not the gaps. */
static void test_weights_hash(void **state) {
    (void)state;
    struct toy t;
    char first[SHA256_TEXT], again[SHA256_TEXT];
    toy_init(&t, 1, 1);
    checkpoint_weights_hash(&t.model, t.values, first);
    struct tensor_info swap = t.params[0];
    t.params[0] = t.params[2];
    t.params[2] = swap;
    t.values[HEADER_LOSS] = 3;
    checkpoint_weights_hash(&t.model, t.values, again);
    assert_string_equal(first, again);
    t.values[t.params[3].offset] += 1;
    checkpoint_weights_hash(&t.model, t.values, again);
    assert_string_not_equal(first, again);
    struct sha256 s; /* by hand: conv.bias, conv.weight, fc.bias, fc.weight */
    toy_init(&t, 1, 1);
    sha256_init(&s);
    for (int i = TOY_PARAMS - 1; i >= 0; i--)
        sha256_update(&s, t.values + t.params[i].offset, (size_t)t.params[i].count * sizeof(float));
    sha256_hex(s, again);
    assert_string_equal(first, again);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_round_trip),
        T(test_header_is_left_alone),
        T(test_newest_valid),
        T(test_nothing_there),
        T(test_every_flip),
        T(test_every_truncation),
        T(test_mixed_up),
        T(test_other_model),
        T(test_other_run),
        T(test_keys_of_the_data),
        T(test_without_the_loss_of_the_best),
        T(test_weights_alone),
        T(test_pytorch_extra),
        T(test_weights_hash),
        T(test_weights_hash_of_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
