/* engine model export: the file is read back by a small reader of its own (messages, names, tensors), its weights are the
 * checkpoint's, and onnxruntime, where it is, computes what 'engine predict --logits' says. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/save/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;
static struct pool *pool;

/* ---- the reader ---- */

struct field {
    int number, kind;
    uint64_t value;            /* of a varint */
    const unsigned char *data; /* of bytes */
    size_t n;
};

static uint64_t varint(const unsigned char **at, const unsigned char *end) {
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    fail_msg("a number does not end");
    return 0;
}

/* The next field of the message; false at its end. */
static bool next(const unsigned char **at, const unsigned char *end, struct field *f) {
    if (*at == end) return false;
    uint64_t key = varint(at, end);
    *f = (struct field){.number = (int)(key >> 3), .kind = (int)(key & 7)};
    if (f->kind == 0) {
        f->value = varint(at, end);
        return true;
    }
    f->n = f->kind == 5 ? 4 : (size_t)varint(at, end);
    assert_true(f->kind == 5 || f->kind == 2);
    assert_true(f->n <= (size_t)(end - *at));
    f->data = *at;
    *at += f->n;
    return true;
}

enum { NAMES = 2000 };
static struct {
    char *name[NAMES]; /* what is defined so far */
    int count, nodes, opset;
    char *property[8][2];
    int nproperties;
} net;

static char *text_of(const struct field *f) {
    char *text = pool_strndup(pool, (const char *)f->data, f->n);
    assert_non_null(text);
    return text;
}

static bool is_defined(const char *name) {
    for (int i = 0; i < net.count; i++)
        if (!strcmp(net.name[i], name)) return true;
    return false;
}

static void define(char *name) {
    if (is_defined(name)) fail_msg("'%s' is defined twice", name);
    assert_true(net.count < NAMES);
    net.name[net.count++] = name;
}

static void read_node(const struct field *node) {
    struct field f;
    char *outputs[4];
    int n = 0;
    for (const unsigned char *at = node->data; next(&at, node->data + node->n, &f);) {
        if (f.number == 1 && !is_defined(text_of(&f))) fail_msg("'%s' is read before it is there", text_of(&f));
        if (f.number == 2) outputs[n++] = text_of(&f);
    }
    assert_int_equal(n, 1);
    define(outputs[0]);
    net.nodes++;
}

/* Its size is its dimensions'; a weight's bytes are the checkpoint's. */
static void read_tensor(const struct field *tensor, const struct st_file *weights) {
    struct field f;
    size_t count = 1, bytes = 0;
    const unsigned char *raw = NULL;
    char *name = NULL;
    uint64_t type = 0;
    for (const unsigned char *at = tensor->data; next(&at, tensor->data + tensor->n, &f);) {
        if (f.number == 1) count *= (size_t)f.value;
        if (f.number == 2) type = f.value;
        if (f.number == 8) name = text_of(&f);
        if (f.number == 9) raw = f.data, bytes = f.n;
    }
    assert_non_null(name);
    assert_true(type == 1 || type == 7);
    assert_int_equal(bytes, count * (type == 1 ? 4 : 8));
    define(name);
    for (int i = 0; i < weights->count; i++) {
        if (strcmp(weights->tensors[i].name, name) != 0) continue;
        void *data = malloc(bytes);
        assert_ok(st_read(weights, &weights->tensors[i], data));
        assert_memory_equal(data, raw, bytes);
        free(data);
        return;
    }
    assert_true(strchr(name, '/') != NULL); /* a constant */
}

static void each(const struct field *message, int number, void (*use)(const struct field *f)) {
    struct field f;
    for (const unsigned char *at = message->data; next(&at, message->data + message->n, &f);)
        if (f.number == number) use(&f);
}

static void read_name(const struct field *value) {
    struct field f;
    const unsigned char *at = value->data;
    assert_true(next(&at, value->data + value->n, &f) && f.number == 1);
    define(text_of(&f));
}

static void check_output(const struct field *value) {
    struct field f;
    const unsigned char *at = value->data;
    assert_true(next(&at, value->data + value->n, &f) && f.number == 1);
    assert_string_equal(text_of(&f), "logits");
    assert_true(is_defined("logits"));
}

static void read_graph(const struct field *graph, const char *run) {
    struct field f;
    struct st_file weights;
    char *step, path[700];
    assert_ok(checkpoint_find(run, NULL, pool, &step));
    snprintf(path, sizeof path, "%s/model.safetensors", step);
    assert_ok(st_open(path, &weights));
    each(graph, 11, read_name);
    for (const unsigned char *at = graph->data; next(&at, graph->data + graph->n, &f);)
        if (f.number == 5) read_tensor(&f, &weights);
    for (int i = 0; i < weights.count; i++) assert_true(is_defined(weights.tensors[i].name));
    each(graph, 1, read_node);
    each(graph, 12, check_output);
    st_close(&weights);
}

static void read_opset(const struct field *opset) {
    struct field f;
    for (const unsigned char *at = opset->data; next(&at, opset->data + opset->n, &f);)
        if (f.number == 2) net.opset = (int)f.value;
}

static void read_property(const struct field *property) {
    struct field f;
    for (const unsigned char *at = property->data; next(&at, property->data + property->n, &f);)
        net.property[net.nproperties][f.number - 1] = text_of(&f);
    net.nproperties++;
}

static void read_file(const char *path, const char *run) {
    char *text;
    size_t n;
    struct field f;
    memset(&net, 0, sizeof net);
    assert_ok(file_read(path, 64 << 20, pool, &text, &n));
    const struct field all = {.data = (const unsigned char *)text, .n = n};
    each(&all, 8, read_opset);
    each(&all, 14, read_property);
    for (const unsigned char *at = all.data; next(&at, all.data + n, &f);)
        if (f.number == 7) read_graph(&f, run);
    assert_true(net.opset >= 17);
    assert_true(net.nodes > 0);
}

static const char *property(const char *key) {
    for (int i = 0; i < net.nproperties; i++)
        if (!strcmp(net.property[i][0], key)) return net.property[i][1];
    return "";
}

/* ---- onnxruntime ---- */

static const char script[] = "import json, sys, numpy as np, onnxruntime as ort\n"
                             "net, samples, answers = sys.argv[1:]\n"
                             "session = ort.InferenceSession(net, providers=['CPUExecutionProvider'])\n"
                             "x = np.load(samples)\n"
                             "x = x.astype(np.int64 if 'int64' in session.get_inputs()[0].type else np.float32)\n"
                             "want = np.array([a['logits'] for a in json.load(open(answers))])\n"
                             "got = session.run(None, {'input': x})[0].reshape(len(x), -1, want.shape[1])[:, -1]\n"
                             "print(abs(got - want).max())\n"
                             "sys.exit(0 if abs(got - want).max() < 1e-4 else 1)\n";

static void computes_the_same(const char *run, const char *onnx, const char *samples) {
    const char *python = program_python(&p, "onnxruntime, numpy");
    if (!python) return;
    save_text("check.py", script);
    program_run(&p, 60, "predict", run, samples, "--json", "--logits", NULL);
    assert_int_equal(p.code, 0);
    save_text("answers.json", p.out);
    program_spawn(&p, (const char *const[]){python, "check.py", onnx, samples, "answers.json", NULL});
    assert_true(program_wait(&p, 300));
    if (p.code) fail_msg("%s: %s\n%s", onnx, p.out, p.err);
}

/* ---- tests ---- */

static int set_up(void **state) {
    (void)state;
    return chdir(scratch_folder()) != 0 || pool_create(&pool) != ERR_NONE ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static void npy(const char *path, const char *shape, int samples, int each_has) {
    char header[119];
    FILE *f = fopen(path, "wb");
    int n = snprintf(header, sizeof header, "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shape);
    memset(header + n, ' ', sizeof header - (size_t)n);
    header[117] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, f);
    fwrite(header, 1, 118, f);
    for (int i = 0; i < samples * each_has; i++) fputc(i * 31 % 251, f);
    assert_int_equal(fclose(f), 0);
}

static void export_one(const char *name, const char *model, const char *data, const char *samples) {
    char set[2][900], dir[64], onnx[64];
    snprintf(set[0], sizeof set[0], "model=%s", model);
    snprintf(set[1], sizeof set[1], "data=%s", data);
    snprintf(dir, sizeof dir, "log.dir=%s", name);
    snprintf(onnx, sizeof onnx, "%s.onnx", name);
    program_run(&p, 120, "run", "--quiet", "--set", set[0], "--set", set[1], "--set", dir, "--set", "mode=single",
                "--set", "devices=cpu:1", "--set", "threads=1", "--set", "batch=16", "--set", "train=2st", "--set",
                "eval=end", NULL);
    if (p.code) fail_msg("%s: %s", name, p.err);
    program_run(&p, 60, "model", "export", name, "-o", "-", NULL);
    assert_true(p.code == 64 && strstr(p.err, "to a file, not to standard output"));
    program_run(&p, 60, "model", "export", name, "-o", onnx, NULL);
    if (p.code) fail_msg("%s: %s", name, p.err);
    assert_non_null(strstr(p.out, onnx));
    read_file(onnx, name);
    if (samples) computes_the_same(name, onnx, samples);
}

static void every_layer(void **state) {
    (void)state;
    npy("pictures.npy", "(3, 3, 32, 32)", 3, 3 * 32 * 32);
    npy("digits.npy", "(3, 1, 28, 28)", 3, 28 * 28);
    export_one(
        "parts",
        "{layers: [{conv2d: {out: 6, kernel: [3, 5], stride: [2, 1], pad: [1, 0], groups: 3, name: a}}, batchnorm, "
        "{gelu: tanh}, {conv2d: {out: 6, kernel: 1, bias: false}}, gelu, {add: {from: a}}, {avgpool: {kernel: 3, "
        "stride: 2, pad: 1}}, silu, {groupnorm: 3}, {maxpool: {kernel: 3, stride: 2, pad: 1}}, "
        "tokens, {class_token: {deviation: 1}}, position, layernorm, {linear: 12}, {attention: {heads: 2}}, rmsnorm, "
        "{dropout: 0.5}, {linear: {units: 8, "
        "bias: false}}, {leaky_relu: 0.2}, {select: 0}, sigmoid, tanh, {linear: {units: 10, transposed: true}}]}",
        "{set: shapes, train: 64, val: 16}", "pictures.npy");
    assert_non_null(strstr(property("preprocessing"), "\"mean\""));
    export_one("lenet", "lenet", "{set: digits, train: 64, val: 16}", "digits.npy");
    export_one("resnet", "{zoo: resnet20, width: 8}", "{set: shapes, train: 64, val: 16}", "pictures.npy");
    export_one("vit", "{zoo: vit-tiny, depth: 1, width: 24, heads: 3}", "{set: shapes, train: 64, val: 16}",
               "pictures.npy");
    export_one("gpt", "{zoo: gpt-nano, depth: 1, width: 24, heads: 2}",
               "{set: grammar, train: 64, val: 16, context: 32}", NULL);
}

/* Their order is the outputs'; a checkpoint's folder is as good as the run. */
static void class_names_go_along(void **state) {
    (void)state;
    char path[64];
    for (int i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "photos/%s", i % 2 ? "wide" : "tall \"1\"");
        assert_ok(file_make_folders(path));
        snprintf(path, sizeof path, "photos/%s/%02d.png", i % 2 ? "wide" : "tall \"1\"", i);
        png_put(path, i, i % 2 ? 30 : 20, i % 2 ? 20 : 30, PNG_COLOR_TYPE_RGB, 8);
    }
    export_one("named", "{layers: [flatten, {linear: 2}]}", "{set: images, train: photos, size: 12}", NULL);
    assert_string_equal(property("class_names"), "[\"tall \\\"1\\\"\",\"wide\"]");
    char *step, *first, *second;
    size_t n, m;
    assert_ok(checkpoint_find("named", NULL, pool, &step));
    program_run(&p, 60, "model", "export", step, "-o", "again.onnx", NULL);
    assert_int_equal(p.code, 0);
    assert_ok(file_read("named.onnx", 1 << 20, pool, &first, &n));
    assert_ok(file_read("again.onnx", 1 << 20, pool, &second, &m));
    assert_int_equal(n, m);
    assert_memory_equal(first, second, n);
}

/* A FIFO has no size: what is told is that of the file. */
static void a_pipe_is_told_its_bytes(void **state) {
    (void)state;
    static char data[1 << 20];
    char want[64], size[32];
    size_t n = 0;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    program_start(&p, (const char *const[]){"model", "export", "named", "-o", "pipe", NULL});
    FILE *f = fopen("pipe", "rb");
    assert_non_null(f);
    n = fread(data, 1, sizeof data, f);
    fclose(f);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 0);
    snprintf(want, sizeof want, "pipe: ONNX, %s;", text_of_bytes((double)n, size));
    assert_non_null(strstr(p.out, want));
}

static void what_is_wrong(void **state) {
    (void)state;
    program_run(&p, 30, "model", "export", "named", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 30, "model", "export", "no-such-run", "-o", "x.onnx", NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 30, "model", "export", "named", "-o", "no/such/folder/x.onnx", NULL);
    assert_int_equal(p.code, 73);
    assert_false(file_exists("x.onnx"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer),
        cmocka_unit_test(class_names_go_along),
        cmocka_unit_test(a_pipe_is_told_its_bytes),
        cmocka_unit_test(what_is_wrong),
    };
    return cmocka_run_group_tests_name("export", tests, set_up, tear_down);
}
