/* The layers as users read of them: help, manual, completion and docs/layers.md tell all of every table, the page's
 * networks train, and its mistakes are reported as it says. */
#include "cli/line/cli.h"
#include "engine/model/layer.h"
#include "tests/harness/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p;
static struct pool *pool;
static char *page;

static void find(const char *where, const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("%s: '%s' is missing in\n%.2000s", where, part, text);
}

/* Lines are put together: help and manual break them where they like, and the manual writes '-' as '\-'. */
static void join_lines(char *text) {
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (*c == '\\') c += c[1] == '&' ? 2 : 1;
        if (!*c) break;
        bool blank = *c == ' ' || *c == '\n';
        if (blank && to > text && to[-1] == ' ') continue;
        *to++ = blank ? ' ' : *c;
    }
    *to = '\0';
}

static void find_key(void *user, const struct config_key *key) {
    const char *where = user;
    find(where, p.out, key->kind);
    find(where, p.out, key->help);
    find(where, p.out, key->path);
    if (key->also) find(where, p.out, key->also);
}

/* p.out tells all of the layer. */
static void check_layer(const char *where, const struct layer_ops *layer) {
    struct layer_fact facts[LAYER_FACTS];
    char name[32];
    int n;
    snprintf(name, sizeof name, "%s", where);
    find(where, p.out, layer->section.help);
    assert_ok(layer_tell(layer, pool, facts, &n));
    for (int i = 0; i < n; i++) find(where, p.out, facts[i].text);
    assert_ok(config_walk(&layer->section, pool, find_key, name));
}

static void help_and_manual_tell_every_layer(void **state) {
    static struct program list;
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    (void)state;
    program_run(&list, 10, "help", "layers", NULL);
    assert_int_equal(list.code, 0);
    join_lines(list.out);
    for (int i = 0; i < n; i++) {
        find("the list", list.out, kinds[i]->section.help);
        program_run(&p, 10, "help", kinds[i]->section.name, NULL);
        assert_int_equal(p.code, 0);
        join_lines(p.out);
        check_layer("help", kinds[i]);
    }
    program_run(&p, 10, "help", "--man", "engine.yaml", NULL);
    assert_int_equal(p.code, 0);
    find("manual", p.out, ".TP\n.B conv2d.kernel\n");
    join_lines(p.out);
    for (int i = 0; i < n; i++) check_layer("manual", kinds[i]);
}

static void help_finds_what_is_meant(void **state) {
    (void)state;
    static const struct {
        const char *topic, *says;
    } cases[] = {{"model.layers", "\n  conv2d "},
                 {"model.layers.conv2d", "conv2d: Convolution"},
                 {"nn.Conv2d", "conv2d: Convolution"},
                 {"conv2d.kernel", "kernel           an integer from 1 to 1024"},
                 {"lr", "optimizer.lr, as in 'optimizer: {lr: 0.05}':\nlr               a number"},
                 {"learning_rate", "optimizer.lr, as in"},
                 {"epochs", "train, as in 'train: 3ep':\ntrain "},
                 {"momentum", "of the layer batchnorm:\nmomentum "},
                 {"kernel_size", "of the layer maxpool:\nkernel "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run(&p, 10, "help", cases[i].topic, NULL);
        if (p.code) fail_msg("%s: %s", cases[i].topic, p.err);
        find(cases[i].topic, p.out, cases[i].says);
    }
    program_run(&p, 10, "help", "conv2", NULL);
    assert_int_equal(p.code, 64);
    find("help", p.err, "hint: did you mean 'conv2d'?");
    program_run(&p, 10, "help", "conv2d.kernl", NULL);
    assert_int_equal(p.code, 64);
    find("help", p.err, "hint: did you mean 'kernel'?");
}

static void options_of_other_tools_are_known(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"--lr=3", "'--lr', did you mean '--set optimizer.lr=3'?"},
                                           {"--epochs", "did you mean '--set train=3ep'?"},
                                           {"--batch-size", "did you mean '--set batch=3'?"},
                                           {"--seed", "did you mean '--set seed=3'?"},
                                           {"--gpus", "did you mean '--devices'?"},
                                           {"--train=9st", "did you mean '--set train=9st'?"},
                                           {"--config=a.yaml", "as in engine run a.yaml"},
                                           {"--quite", "did you mean '--quiet'?"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_run(&p, 10, "run", cases[i][0], "3", NULL);
        assert_int_equal(p.code, 64);
        find("run", p.err, cases[i][1]);
    }
}

/* ---- docs/layers.md ---- */

static void key_line(void *user, const struct config_key *key) {
    const char *standard = key->field->standard;
    fprintf(user, "| `%s` | %s | %s%s%s | %s%s%s%s |\n", key->path, key->kind, standard ? "`" : "",
            standard ? standard : "", standard ? "`" : "", key->help, key->also ? " (in other tools: " : "",
            key->also ? key->also : "", key->also ? ")" : "");
}

static enum error keys_table(const struct config_section *s, FILE *out) {
    if (!s->fields->key) return ERR_NONE;
    fputs("\n| parameter | takes | default | |\n|---|---|---|---|\n", out);
    return config_walk(s, pool, key_line, out);
}

static enum error layer_chapter(const struct layer_ops *layer, FILE *out) {
    struct layer_fact facts[LAYER_FACTS];
    int count;
    TRY(layer_tell(layer, pool, facts, &count));
    fprintf(out, "\n## %s\n\n%s.\n\n| | |\n|---|---|\n", layer->section.name, layer->section.help);
    for (int i = 0; i < count; i++) fprintf(out, "| %s | `%s` |\n", facts[i].name, facts[i].text);
    return keys_table(&layer->section, out);
}

static enum error layers_markdown(FILE *out) {
    int n;
    const struct layer_ops *const *kinds = layer_kinds(&n);
    fprintf(out,
            "# Every layer\n\n%s A bare value is the first parameter's: `linear: 10` is `linear: {units: 10}`.\n\n",
            layer_dimensions);
    fputs("| layer | PyTorch | |\n|---|---|---|\n", out);
    for (int i = 0; i < n; i++) {
        const struct config_section *s = &kinds[i]->section;
        const char *torch = config_also_text(s->also, pool);
        fprintf(out, "| [%s](#%s) | `%s` | %s |\n", s->name, s->name, torch ? torch : "", s->help);
    }
    fputs("\nEvery layer takes these, too:\n", out);
    TRY(keys_table(&layer_common_section, out));
    for (int i = 0; i < n; i++) TRY(layer_chapter(kinds[i], out));
    return ERR_NONE;
}

/* Its last chapter says what the layers' tables say; where it differs, what they say is left in /tmp. */
static void the_page_is_as_the_tables(void **state) {
    char *text;
    size_t n;
    (void)state;
    FILE *out = open_memstream(&text, &n);
    assert_ok(layers_markdown(out));
    fclose(out);
    const char *made = strstr(page, "\n# Every layer\n");
    assert_non_null(made);
    if (strcmp(made + 1, text) != 0) {
        save_text("/tmp/layers.md", text);
        fail_msg("docs/layers.md is not what the layers' tables say. To make it so:\n"
                 "  sed -i '/^# Every layer/,$d' docs/layers.md; cat /tmp/layers.md >> docs/layers.md");
    }
    free(text);
}

/* The next fenced block of this kind from *at on, as a copy; *at is moved to its end. NULL: there is none. */
static const char *block(const char **at, const char *fence) {
    const char *begin = strstr(*at, fence);
    if (!begin) return NULL;
    begin += strlen(fence);
    *at = strstr(begin - 1, "\n```\n");
    assert_non_null(*at);
    const char *text = pool_strndup(pool, begin, (size_t)(*at + 1 - begin));
    *at += strlen("\n```\n");
    return text;
}

static void train(const char *yaml) {
    char dir[600];
    static int serial;
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("network-"), serial++);
    save_text(scratch_path("network.yaml"), yaml);
    program_run(&p, 120, "run", scratch_path("network.yaml"), "--set", dir, "--set", "train=3st", "--json", "--quiet",
                "--mode", "single", NULL);
    if (p.code) fail_msg("%s\n%s", yaml, p.err);
    assert_int_equal(program_number(&p, "steps"), 3);
}

/* A block of YAML that another block follows at once is a mistake, with what is said of it. */
static void its_networks_train_and_its_mistakes_are_told(void **state) {
    (void)state;
    static const char script[] = "cd \"$1\" && \"$2/engine\" config --check mistake.yaml";
    const char *at = page, *yaml;
    int good = 0, bad = 0;
    while ((yaml = block(&at, "\n```yaml\n"))) {
        if (strncmp(at, "```\n", 4) != 0) {
            train(yaml);
            good++;
            continue;
        }
        at--;
        const char *says = block(&at, "\n```\n");
        save_text(scratch_path("mistake.yaml"), yaml);
        program_spawn(&p, (const char *const[]){"sh", "-c", script, "sh", scratch_folder(), ENGINE_BINARY_DIR, NULL});
        assert_true(program_wait(&p, 20));
        assert_int_equal(p.code, 78);
        assert_string_equal(p.err, says);
        bad++;
    }
    assert_true(good >= 3 && bad >= 8);
}

static int set_up(void **state) {
    size_t n;
    (void)state;
    if (pool_create(&pool) != ERR_NONE) return -1;
    return tree_text(ENGINE_SOURCE_DIR "/docs/layers.md", pool, &page, &n) != ERR_NONE;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_manual_tell_every_layer),
        cmocka_unit_test(help_finds_what_is_meant),
        cmocka_unit_test(options_of_other_tools_are_known),
        cmocka_unit_test(the_page_is_as_the_tables),
        cmocka_unit_test(its_networks_train_and_its_mistakes_are_told),
    };
    return cmocka_run_group_tests_name("layers", tests, set_up, tear_down);
}
