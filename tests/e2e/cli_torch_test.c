/* Checkpoints into PyTorch's modules and back, by tests/reference/check_torch.py, and the lines of the
 * documentation that use a trained network, where there is a Python with torch
 * (ENGINE_TORCH_PYTHON names one); else this is skipped. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include "engine/base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct program p;

static void weights_go_to_pytorch_and_back(void **state) {
    (void)state;
    static const char script[] = ENGINE_SOURCE_DIR "/tests/reference/check_torch.py",
                      engine[] = ENGINE_BINARY_DIR "/engine";
    const char *python = program_python(&p, "torch, numpy");
    if (!python) skip();
    const char *const words[] = {python, script, engine, scratch_folder(), NULL};
    program_spawn(&p, words);
    if (!program_wait(&p, 300) || p.code != 0) fail_msg("%s%s", p.out, p.err);
    print_message("%s", p.out);
    assert_non_null(strstr(p.out, "vit: loss from PyTorch's weights"));
}

/* ---- the lines of docs/trained-networks.md ---- */

static const char *path(const char *name) {
    static char text[8][600];
    static int at;
    snprintf(text[++at % 8], sizeof text[0], "%s", scratch_path(name));
    return text[at % 8];
}

static void train_on_pictures(void) {
    static const char *const classes[] = {"cat", "dog", "owl"};
    char name[300], data[700], dir[700];
    for (int i = 0; i < 24; i++) {
        snprintf(name, sizeof name, "animals/%s", classes[i % 3]);
        assert_ok(file_make_folders(scratch_path(name)));
        snprintf(name, sizeof name, "animals/%s/%02d.png", classes[i % 3], i);
        png_put(name, i * 5, 64, 64, PNG_COLOR_TYPE_RGB, 8);
    }
    snprintf(data, sizeof data, "data={set: images, train: %s, val: 3, size: 64, resize: 64}", path("animals"));
    snprintf(dir, sizeof dir, "log.dir=%s", path("run"));
    program_run(&p, 120, "run", "--json", "--quiet", "--set", data, "--set", "model={zoo: resnet18, stem: imagenet}",
                "--set", "mode=single", "--set", "devices=cpu:1", "--set", "batch=8", "--set", "train=4st", "--set",
                "optimizer.lr=0.01", "--set", dir, NULL);
    if (p.code) fail_msg("%s", p.err);
    assert_ok(file_remove_tree(path("animals")));
}

/* The lines themselves, in the folder of the checkpoint. */
static void put_lines(struct pool *pool, const char *to) {
    char *text;
    size_t n;
    assert_ok(file_read(ENGINE_SOURCE_DIR "/docs/trained-networks.md", 1 << 20, pool, &text, &n));
    char *begin = strstr(text, "```python\n"), *end = begin ? strstr(begin, "\n```\n") : NULL;
    assert_non_null(end);
    end[1] = '\0';
    save_text(to, begin + strlen("```python\n"));
}

static void the_lines_of_the_documentation_give_our_logits(void **state) {
    (void)state;
    struct pool *pool;
    const char *python = program_python(&p, "torch, torchvision, safetensors, PIL");
    if (!python) skip();
    assert_ok(pool_create(&pool));
    train_on_pictures();
    char step[700];
    snprintf(step, sizeof step, "%s/ckpt/step-000000004", path("run"));
    char *lines = pool_printf(pool, "%s/lines.py", step), *picture = pool_printf(pool, "%s/picture.png", step);
    png_put("picture.png", 77, 64, 64, PNG_COLOR_TYPE_RGB, 8);
    assert_int_equal(rename(path("picture.png"), picture), 0);
    put_lines(pool, lines);
    program_run(&p, 60, "predict", path("run"), picture, "--json", NULL);
    if (p.code) fail_msg("%s", p.err);
    const struct json_value *all;
    const struct json_limits limits = {.depth = 8, .entries = 1000, .text = 4096};
    assert_ok(json_parse(p.out, strlen(p.out), limits, pool, &all));
    const struct json_value *top = json_get(&all->children[0], "top");
    program_spawn(&p, (const char *const[]){"env", "-C", step, python, "lines.py", NULL});
    if (!program_wait(&p, 120) || p.code != 0) fail_msg("%s%s", p.out, p.err);
    const char *name = json_get(&top->children[0], "text")->text;
    assert_int_equal(strncmp(p.out, name, strlen(name)), 0);
    const struct json_value *theirs;
    const char *list = strchr(p.out, '[');
    assert_non_null(list);
    assert_ok(json_parse(list, strlen(list), limits, pool, &theirs));
    assert_int_equal(theirs->count, 3);
    assert_int_equal(top->count, 3);
    for (int i = 0; i < 3; i++) {
        int64_t label = json_get(&top->children[i], "label")->integer;
        double ours = json_get(&top->children[i], "logit")->number, other = theirs->children[label].number;
        print_message("%s: %.7f here, %.7f in torchvision\n", json_get(&top->children[i], "text")->text, ours, other);
        if (!(fabs(ours - other) <= 1e-4 * (1 + fabs(other)))) fail_msg("%.9g is not %.9g", ours, other);
    }
    pool_free(pool);
}

/* ---- what transformers saves ---- */

/* As first weights, and as weights to measure. */
static void gpt2_of_transformers_is_taken(void **state) {
    (void)state;
    static const char script[] = ENGINE_SOURCE_DIR "/tests/reference/save_gpt2.py";
    const char *python = program_python(&p, "torch, transformers");
    if (!python) skip();
    program_spawn(&p, (const char *const[]){python, script, scratch_folder(), NULL});
    if (!program_wait(&p, 120) || p.code != 0) fail_msg("%s%s", p.out, p.err);
    double theirs = strtod(p.out, NULL);
    char data[1300], model[700], dir[700];
    const char *folder = path("gpt2");
    snprintf(data, sizeof data, "data={set: tokens, train: %s, val: %s, context: 16, vocabulary: 27}",
             path("tokens.bin"), path("tokens.bin"));
    for (int i = 0; i < 2; i++) {
        snprintf(model, sizeof model, "model={zoo: gpt, depth: 2, width: 16, heads: 2%s%s%s}",
                 i ? "" : ", init: ", i ? "" : folder, i ? "" : "/model.safetensors");
        snprintf(dir, sizeof dir, "log.dir=%s", path("tokens"));
        const char *const sets[] = {i ? "eval" : "run",
                                    "--json",
                                    "--set",
                                    data,
                                    "--set",
                                    model,
                                    "--set",
                                    dir,
                                    "--set",
                                    "mode=single",
                                    "--set",
                                    "devices=cpu:1",
                                    "--set",
                                    "batch=8",
                                    i ? "--checkpoint" : "--set",
                                    i ? path("gpt2/model.safetensors") : "train=1st",
                                    "--set",
                                    "optimizer={name: sgd, lr: 1e-20, momentum: 0}",
                                    NULL};
        program_start(&p, sets);
        if (!program_wait(&p, 60) || p.code) fail_msg("%s", p.err);
        double ours = program_number(&p, i ? "result.loss" : "val.loss");
        print_message("%s: loss %.9g here, %.9g in transformers\n", sets[0], ours, theirs);
        assert_true(fabs(ours - theirs) <= 1e-5 * theirs);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_go_to_pytorch_and_back),
                                       cmocka_unit_test(gpt2_of_transformers_is_taken),
                                       cmocka_unit_test(the_lines_of_the_documentation_give_our_logits)};
    return cmocka_run_group_tests_name("PyTorch's modules", tests, NULL, NULL);
}
