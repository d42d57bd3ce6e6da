/* What 'engine model summary --device' counts of a step is what a step launches on the emulated GPU: all that runs has a row
 * there, and products, convolutions, added gradients and passes over the weights are as many as it says. */
#include "tests/gpu/gpu.h"
#include "tests/harness/program.h"

#include <string.h>

#ifdef ENGINE_EMULATED

/* What a kernel's file is for: a row of the page, or the update. */
static const char *const files[][2] = {
    {"linear.cu", "linear"},           {"columns.cu", "linear"},
    {"norm.cu", "layernorm"},          {"norm_back.cu", "layernorm"},
    {"attention_tile.h", "attention"}, {"attention_queries.cu", "attention"},
    {"embedding.cu", "embedding"},     {"sequence.cu", "position"},
    {"sequence.cu", "mean"},           {"loss.cu", "cross_entropy"},
    {"batchnorm.cu", "batchnorm"},     {"conv.cu", "conv2d"},
    {"reorder.cu", "conv2d"},          {"pool.cu", "pool2d"},
    {"vector.cu", "update"},           {"update.cu", "update"},
};
enum { FILES = sizeof files / sizeof *files, WORKS = 256 };

static struct program p;
static struct work { /* of a step */
    long times;
    char name[200];
} works[WORKS];
static const struct json_value *rows; /* of the page */

/* Runs so many steps; adds what they did, so many times, to 'works'. */
static void run(const char *const *sets, const char *steps, long sign) {
    struct work w;
    setenv("ENGINE_EMULATED_WORK", scratch_path("work"), 1);
    program_train(&p, sets, SETS(steps));
    unsetenv("ENGINE_EMULATED_WORK");
    FILE *f = fopen(scratch_path("work"), "r");
    assert_non_null(f);
    while (fscanf(f, "%ld %199[^\n]", &w.times, w.name) == 2) {
        int i = 0;
        while (*works[i].name && strcmp(works[i].name, w.name) != 0) i++;
        works[i].times += sign * w.times;
        memcpy(works[i].name, w.name, sizeof w.name);
    }
    fclose(f);
}

static bool is_of(const struct work *w, const char *file) {
    const char *slash = strrchr(w->name, '/');
    return slash && !strcmp(slash + 1, file);
}

static long launched(const char *name, const char *file) {
    long times = 0;
    for (const struct work *w = works; *w->name; w++)
        if (!strncmp(w->name, name, strlen(name)) && (!file || is_of(w, file))) times += w->times;
    return times;
}

/* Of the rows of an op: how many there are, their products (backward has two where it computes dx), and how many compute none. */
struct counted {
    long rows, products, first;
};
static struct counted counted(const char *op) {
    struct counted c = {0, 0, 0};
    for (int i = 0; i < rows->count; i++) {
        const struct json_value *r = &rows->children[i];
        if (strcmp(json_get_text(r, "op"), op) != 0) continue;
        bool both = json_number(json_get(r, "backward"), "flops") > json_number(json_get(r, "forward"), "flops");
        c.rows++, c.products += both ? 3 : 2, c.first += !both;
    }
    return c;
}

static long added(void) {
    long adds = 0;
    for (int i = 0; i < rows->count; i++) {
        double launches = json_number(json_get(&rows->children[i], "backward"), "launches");
        if (launches > 1) adds += (long)launches - 1;
    }
    return adds;
}

static void all_has_a_row(void) {
    for (const struct work *w = works; *w->name; w++) {
        bool has = w->times == 0 || !strchr(w->name, '/');
        for (int k = 0; k < FILES && !has; k++)
            has = is_of(w, files[k][0]) && (!strcmp(files[k][1], "update") || counted(files[k][1]).rows);
        if (!has) fail_msg("the page has no row for %s", w->name);
    }
}

static void page_is_what_runs(const char *model, const char *data) {
    const char *const sets[] = {model,
                                data,
                                "batch={size: 4, shards: 2}",
                                "precision=bf16",
                                "optimizer={name: adamw, clip: 1}",
                                "mode=single",
                                "devices=cuda:0",
                                "checkpoint=off",
                                "eval=off",
                                NULL};
    const char *words[PROGRAM_ARGS] = {"model",  "summary",  ENGINE_SOURCE_DIR "/configs/quickstart.yaml",
                                       "--json", "--device", "h100"};
    struct pool *pool;
    memset(works, 0, sizeof works);
    run(sets, "train=2st", -1);
    run(sets, "train=3st", 1);
    for (int i = 0; sets[i]; i++) words[6 + 2 * i] = "--set", words[7 + 2 * i] = sets[i];
    program_start(&p, words);
    assert_true(program_wait(&p, 60));
    program_assert_code(&p, 0);
    assert_ok(pool_create(&pool));
    const struct json_value *cost = json_get(program_json(&p, pool), "cost");
    long passes = (long)json_number(cost, "passes");
    rows = json_get(cost, "steps");
    all_has_a_row();
    assert_int_equal(passes, 2);
    assert_int_equal(launched("a product", NULL), passes * counted("linear").products);
    assert_int_equal(launched("a convolution", NULL), passes * counted("conv2d").products);
    /* besides, each pass tells the host its loss, and rounds the pictures that the first convolution reads */
    long others = passes * (1 + counted("conv2d").first + added());
    assert_int_equal(launched("", "vector.cu") + launched("", "update.cu"),
                     others + (long)json_number(json_get(cost, "update"), "launches"));
    pool_free(pool);
}

static void of_a_transformer(void **state) {
    (void)state;
    page_is_what_runs("model={zoo: gpt, depth: 2, width: 32, heads: 2}",
                      "data={set: grammar, context: 16, train: 1000, val: 200}");
}

static void of_a_residual_network(void **state) {
    (void)state;
    page_is_what_runs("model={zoo: resnet, block: bottleneck, blocks: [2, 1], width: 8, stem: imagenet}",
                      "data={set: shapes, train: 40, val: 8}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_transformer),
        cmocka_unit_test(of_a_residual_network),
    };
    return gpu_run_tests(tests);
}
#else
int main(void) {
    printf("skipped: a real GPU does not say what it has launched\n");
    return GPU_SKIPPED;
}
#endif
