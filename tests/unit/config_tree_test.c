/* YAML to trees: what is read, what is refused and how that reads, limits, overrides, and writing
 * back. */
#include "tests/harness/harness.h"

#include "engine/config/tree.h"
#include "tests/harness/timing.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

struct fixture {
    struct pool *pool;
    struct config_errors *e;
    struct node *root;
};

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    if (!f || pool_create(&f->pool) || config_errors_create(&f->e)) return -1;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    pool_free(f->pool);
    config_errors_free(f->e);
    free(f);
    return 0;
}

static enum error parse(struct fixture *f, const char *text, size_t n) {
    config_errors_free(f->e);
    assert_ok(config_errors_create(&f->e));
    return tree_parse(text, n, "c.yaml", f->pool, f->e, &f->root);
}

static void parse_good(struct fixture *f, const char *text) {
    if (parse(f, text, strlen(text)) != ERR_NONE) fail_msg("%s", config_errors_text(f->e, f->pool));
    assert_int_equal(config_errors_count(f->e), 0);
}

static const char *written(struct fixture *f) {
    const char *text = tree_write(f->root, false, f->pool);
    assert_non_null(text);
    return text;
}

/* ---- reading ---- */

static void places(void **state) {
    struct fixture *f = *state;
    parse_good(f, "\xef\xbb\xbf" /* a mark of the byte order moves nothing */
                  "a: 1\nsection:\n  key: \"two words\"\n  list: [x, "
                  "'y']\nempty:\n\xc3\xa9t\xc3\xa9: caf\xc3\xa9\n");
    const struct node *a = node_get(f->root, "a"), *section = node_get(f->root, "section");
    assert_int_equal(a->kind, NODE_SCALAR);
    assert_string_equal(a->text, "1");
    assert_string_equal(a->source, "c.yaml");
    assert_int_equal(a->line, 1);
    assert_int_equal(a->col, 4);
    assert_int_equal(a->key_line, 1);
    assert_int_equal(a->key_col, 1);
    assert_int_equal(a->width, 1);
    assert_false(a->quoted);
    const struct node *key = node_get(section, "key");
    assert_true(key->quoted);
    assert_int_equal(key->line, 3);
    assert_int_equal(key->col, 8);
    assert_int_equal(key->width, 11);
    const struct node *list = node_get(section, "list");
    assert_int_equal(list->kind, NODE_LIST);
    assert_int_equal(list->count, 2);
    assert_null(list->items[0]->key);
    assert_true(list->items[1]->quoted);
    assert_string_equal(node_get(f->root, "empty")->text, "");
    assert_int_equal(node_get(f->root, "\xc3\xa9t\xc3\xa9")->col, 6);
    assert_null(node_get(f->root, "absent"));
    assert_null(node_get(a, "a"));
    assert_null(node_get(NULL, "a"));
}

static void empty_texts(void **state) {
    static const char *const texts[] = {"", "\n\n", "# only this\n", "---\n", "{}", "\xef\xbb\xbf"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        parse_good(*state, texts[i]);
        struct fixture *f = *state;
        assert_int_equal(f->root->kind, NODE_MAP);
        assert_int_equal(f->root->count, 0);
    }
}

/* Text, then the whole report. */
static const struct {
    const char *text, *report;
} wrong[] = {
    {"comm:\n  overlap: true\n  timeout: 1s\n  overlap: false\n",
     "c.yaml:4:3: error: duplicate key 'overlap' in 'comm' (first set at 2:3)\n"
     "    4 |   overlap: false\n"
     "      |   ^~~~~~~\n"
     "1 error.\n"},
    {"a: 1\nb: 2\n\"a\": 3\na: 4\n", "c.yaml:3:1: error: duplicate key 'a' (first set at 1:1)\n"
                                     "    3 | \"a\": 3\n"
                                     "      | ^\n"
                                     "c.yaml:4:1: error: duplicate key 'a' (first set at 1:1)\n"
                                     "    4 | a: 4\n"
                                     "      | ^\n"
                                     "2 errors.\n"},
    {"a: &x 1\nb: *x\n", "c.yaml:1:4: error: anchors ('&x') are not allowed\n"
                         "    1 | a: &x 1\n"
                         "      |    ^~~~\n"
                         "c.yaml:2:4: error: aliases ('*x') are not allowed\n"
                         "    2 | b: *x\n"
                         "      |    ^\n"
                         "2 errors.\n"},
    {"a: &x [*x]\n", "c.yaml:1:4: error: anchors ('&x') are not allowed\n"
                     "    1 | a: &x [*x]\n"
                     "      |    ^\n"
                     "c.yaml:1:8: error: aliases ('*x') are not allowed\n"
                     "    1 | a: &x [*x]\n"
                     "      |        ^\n"
                     "2 errors.\n"},
    {"a: !!python/object:os.system x\n",
     "c.yaml:1:4: error: tags ('tag:yaml.org,2002:python/object:') are not allowed\n"
     "    1 | a: !!python/object:os.system x\n"
     "      |    ^~~~~~~~~~~~~~~~~~~~~~~~~~~\n"
     "1 error.\n"},
    {"a: {<<: {b: 1}}\n", "c.yaml:1:5: error: merge keys ('<<') are not allowed\n"
                          "    1 | a: {<<: {b: 1}}\n"
                          "      |     ^~\n"
                          "1 error.\n"},
    {"a: 1\n---\nb: 2\n", "c.yaml:2:1: error: a second document begins here\n"
                          "    2 | ---\n"
                          "      | ^\n"
                          "      hint: a configuration is one document\n"
                          "1 error.\n"},
    {"a:\n\tb: 1\n", "c.yaml:2:1: error: a tab cannot indent YAML\n"
                     "    2 | \tb: 1\n"
                     "      | ^\n"
                     "      hint: use spaces\n"
                     "1 error.\n"},
    {"a: [1, 2\nb: 3\n", "c.yaml:2:2: error: did not find expected ',' or ']'\n"
                         "    2 | b: 3\n"
                         "      |  ^\n"
                         "      hint: while parsing a flow sequence, begun at 1:4\n"
                         "1 error.\n"},
    {"a: b: c\n", "c.yaml:1:5: error: mapping values are not allowed in this context\n"
                  "    1 | a: b: c\n"
                  "      |     ^\n"
                  "1 error.\n"},
    {"a: \"never closed\n", "c.yaml:2:1: error: found unexpected end of stream\n"
                            "      hint: while scanning a quoted scalar, begun at 1:4\n"
                            "1 error.\n"},
    {"just words\n", "c.yaml:1:1: error: a configuration is a map of keys\n"
                     "    1 | just words\n"
                     "      | ^~~~~~~~~~\n"
                     "      hint: as in 'mode: ddp'\n"
                     "1 error.\n"},
    {"- a\n- b\n", "c.yaml:1:1: error: a configuration is a map of keys\n"
                   "    1 | - a\n"
                   "      | ^\n"
                   "      hint: as in 'mode: ddp'\n"
                   "1 error.\n"},
    {"? [a, b]\n: 1\nc: 2\n", "c.yaml:1:3: error: a key must be a word, not a list\n"
                              "    1 | ? [a, b]\n"
                              "      |   ^\n"
                              "1 error.\n"},
    {"\"\": 1\n", "c.yaml:1:1: error: a key is missing before ':'\n"
                  "    1 | \"\": 1\n"
                  "      | ^~\n"
                  "1 error.\n"},
    {"a: \"x\\0y\"\n", "c.yaml:1:4: error: a value must not contain the character NUL\n"
                       "    1 | a: \"x\\0y\"\n"
                       "      |    ^~~~~~\n"
                       "1 error.\n"},
    {"a: 1\nb: \xff\xfe\n", "c.yaml:2:4: error: this is not YAML: invalid leading UTF-8 octet\n1 error.\n"},
    {"\x7f"
     "ELF\x02\x01",
     "c.yaml:1:1: error: this is not YAML: control characters are not allowed\n1 error.\n"},
    {"\x1f\x8b\x08", "c.yaml:1:1: error: this is not YAML: control characters are not allowed\n1 error.\n"},
    {"\"\\e[31m\": 1\n\"\\e[31m\": 2\n", /* nothing in a message steers the terminal */
     "c.yaml:2:1: error: duplicate key '?[31m' (first set at 1:1)\n"
     "    2 | \"\\e[31m\": 2\n"
     "      | ^~~~~\n"
     "1 error.\n"},
};

static void wrong_texts(void **state) {
    struct fixture *f = *state;
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_fails(ERR_CONFIG, parse(f, wrong[i].text, strlen(wrong[i].text)));
        assert_int_equal(f->root->kind, NODE_MAP);
        assert_string_equal(config_errors_text(f->e, f->pool), wrong[i].report);
    }
    assert_fails(ERR_CONFIG, parse(f, "a: 1\nb: x\0y\n", 12));
    assert_string_equal(config_errors_text(f->e, f->pool),
                        "c.yaml:2:5: error: this is not YAML: control characters are not allowed\n1 error.\n");
}

/* What can be used stays in the tree, for what else is wrong with it to be told as well. */
static void goes_on(void **state) {
    struct fixture *f = *state;
    const char *text = "a: 1\na: 2\nb: *x\nc: !t 3\n";
    assert_fails(ERR_CONFIG, parse(f, text, strlen(text)));
    assert_int_equal(config_errors_count(f->e), 3);
    assert_string_equal(written(f), "a: 1\nc: 3\n");
}

static void long_lines(void **state) {
    struct fixture *f = *state;
    char text[400];
    memset(text, ' ', sizeof text);
    memcpy(text, "a: {", 4);
    memcpy(text + 300, "b: 1, b: 2}\n", 13);
    assert_fails(ERR_CONFIG, parse(f, text, strlen(text)));
    const char *report = config_errors_text(f->e, f->pool), *line = strchr(report, '\n') + 1;
    const char *caret = strchr(line, '\n') + 1;
    assert_non_null(strstr(report, "c.yaml:1:307: error: duplicate key 'b' in 'a' (first set at 1:301)\n"));
    assert_true(strchr(line, '\n') - line < 120);
    assert_int_equal(line[strchr(caret, '^') - caret], 'b'); /* the caret stands under the second b */
    assert_int_equal(line[strchr(caret, '^') - caret - 2], ',');
}

/* ---- limits ---- */

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* n repetitions of 'part' between head and tail must fail with this first line, fast. */
static void refuse(struct fixture *f, const char *head, const char *part, int n, const char *tail,
                   const char *message) {
    size_t length = strlen(part), at = strlen(head);
    char *text = malloc(at + length * (size_t)n + strlen(tail) + 1);
    assert_non_null(text);
    memcpy(text, head, at);
    for (int i = 0; i < n; i++, at += length) memcpy(text + at, part, length);
    memcpy(text + at, tail, strlen(tail) + 1);
    double before = cpu_ms();
    assert_fails(ERR_CONFIG, parse(f, text, strlen(text)));
    const char *report = config_errors_text(f->e, f->pool);
    double took = cpu_ms() - before;
    free(text);
    if (strncmp(report, message, strlen(message)) != 0) fail_msg("expected %s, got %.300s", message, report);
#ifndef ENGINE_SANITIZED
    if (took > timing_limit(0.1) * 1000) fail_msg("%s: %g ms", message, took);
#else
    (void)took;
#endif
}

static void limits(void **state) {
    struct fixture *f = *state;
    static const char deep[] = ": error: nested deeper than 32 levels\n";
    char message[128];
    snprintf(message, sizeof message, "c.yaml:1:35%s", deep);
    refuse(f, "a: ", "[", 900000, "", message);
    snprintf(message, sizeof message, "c.yaml:1:128%s", deep);
    refuse(f, "a: ", "{a: ", 200000, "", message);
    snprintf(message, sizeof message, "c.yaml:1:65%s", deep);
    refuse(f, "", "- ", 500000, "", message);
    refuse(f, "", "? ", 500000, "", message);
    refuse(f, "a: [", "1,", 400000, "]", "c.yaml:1:199995: error: more than 100000 YAML events\n");
    refuse(f, "a: ", "x", 70000, "\n", "c.yaml:1:4: error: a value of 70000 bytes; at most 65536 are allowed\n");
    refuse(f, "a: ", "x\n ", 300000, "", "c.yaml:1:4: error: a value of 599999 bytes; at most 65536 are allowed\n");
    refuse(f, "", "k", 500, ": 1", "c.yaml:1:1: error: a key of 500 bytes; at most 128 are allowed\n");
    refuse(f, "", "k: 1\n", 49000, "", "c.yaml:2:1: error: duplicate key 'k' (first set at 1:1)\n");
    assert_non_null(strstr(config_errors_text(f->e, f->pool), "\n48999 errors; these are the first hundred.\n"));
    refuse(f, "", "a: 1\n", 300000, "",
           "c.yaml:1:1: error: larger than 1048576 bytes, which is the most a configuration may "
           "have\n");
    parse_good(f, "a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"); /* 32 with
                                                                                          the map */
}

/* Every prefix and every one-byte change of a text is read or refused, and nothing else. */
static void mutations(void **state) {
    struct fixture *f = *state;
    static const char text[] = "a: [1, {b: 'c'}]\n\"d\": |\n  e\n? f\n: - g\n";
    static const char bytes[] = "\0\t\n :-?[]{},&*!|>'\"%@`#\x80\xff";
    char changed[sizeof text];
    for (size_t n = 0; n < sizeof text - 1; n++) {
        (void)!parse(f, text, n);
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            memcpy(changed, text, sizeof text);
            changed[n] = bytes[b];
            enum error err = parse(f, changed, sizeof text - 1);
            assert_true(err == ERR_NONE || err == ERR_CONFIG);
            assert_int_equal(err == ERR_CONFIG, config_errors_count(f->e) > 0);
            assert_non_null(config_errors_text(f->e, f->pool));
        }
        pool_free(f->pool);
        assert_ok(pool_create(&f->pool));
    }
}

/* ---- files ---- */

static void files(void **state) {
    struct fixture *f = *state;
    assert_fails(ERR_INPUT, tree_read(scratch_path("absent.yaml"), f->pool, f->e, &f->root));
    assert_fails(ERR_DATA, tree_read(scratch_folder(), f->pool, f->e, &f->root));
    const char *fifo = scratch_path("fifo"), *large = scratch_path("large.yaml"), *good = scratch_path("good.yaml");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_fails(ERR_DATA, tree_read(fifo, f->pool, f->e, &f->root));
    int fd = open(large, O_CREAT | O_WRONLY, 0600); /* of 100 MB, without a block on disk */
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 100000000), 0);
    close(fd);
    double before = cpu_ms();
    assert_fails(ERR_DATA, tree_read(large, f->pool, f->e, &f->root));
    assert_true(cpu_ms() - before < timing_limit(0.1) * 1000);
    FILE *out = fopen(good, "w");
    assert_non_null(out);
    fputs("a: 1\n", out);
    fclose(out);
    assert_ok(tree_read(good, f->pool, f->e, &f->root));
    assert_string_equal(node_get(f->root, "a")->source, good);
}

static void standard_input(void **state) {
    struct fixture *f = *state;
    const char *path = scratch_path("input.yaml");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs("a: [1\n", out);
    fclose(out);
    int kept = dup(STDIN_FILENO), fd = open(path, O_RDONLY);
    assert_true(kept >= 0 && fd >= 0 && dup2(fd, STDIN_FILENO) >= 0);
    enum error err = tree_read("-", f->pool, f->e, &f->root);
    dup2(kept, STDIN_FILENO);
    close(kept);
    close(fd);
    assert_int_equal(err, ERR_CONFIG);
    assert_non_null(strstr(config_errors_text(f->e, f->pool), "-:2:1: error: did not find expected ',' or ']'\n"));
}

/* ---- --set ---- */

static void sets(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *before, *set, *after;
    } cases[] = {
        {"", "seed=3", "seed: 3\n"},
        {"seed: 1\n", "seed=3", "seed: 3\n"},
        {"seed: 1\nz: 2\n", "a.b.c=v", "seed: 1\nz: 2\na:\n  b:\n    c: v\n"},
        {"a: {b: 1, c: 2}\n", "a.b=[1, {x: y}]", "a:\n  b:\n    - 1\n    - x: y\n  c: 2\n"},
        {"a: {b: 1}\n", "a=2", "a: 2\n"},
        {"batch: 64\n", "batch.shards=8", "batch:\n  \"\": 64\n  shards: 8\n"},
        {"batch:\n", "batch.shards=8", "batch:\n  shards: 8\n"},
        {"m: {layers: [relu, {linear: 10}]}\n", "m.layers[1].linear=20",
         "m:\n  layers:\n    - relu\n    - linear: 20\n"},
        {"m: {layers: [relu, {linear: 10}]}\n", "m.layers[1].linear.bias=false",
         "m:\n  layers:\n    - relu\n    - linear:\n        \"\": 10\n        bias: false\n"},
        {"m: {layers: [relu]}\n", "m.layers[0]=gelu", "m:\n  layers: [gelu]\n"},
        {"m: [[1, 2], [3]]\n", "m[0][1]=9", "m:\n  - [1, 9]\n  - [3]\n"},
        {"", "name=", "name:\n"},
        {"", "name=\"a = b\"", "name: \"a = b\"\n"},
        {"", "until={val.loss: 0.1}", "until:\n  val.loss: 0.1\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        parse_good(f, cases[i].before);
        assert_ok(tree_set(f->root, cases[i].set, f->pool, f->e));
        assert_string_equal(written(f), cases[i].after);
    }
    parse_good(f, "a: {b: 1}\n");
    assert_ok(tree_set(f->root, "a.b=2", f->pool, f->e));
    const struct node *b = node_get(node_get(f->root, "a"), "b");
    assert_string_equal(b->source, "--set a.b=2");
    assert_int_equal(b->line, 0);
    assert_string_equal(b->key, "b");
}

static void wrong_sets(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *set, *report;
    } cases[] = {
        {"seed",
         "--set seed: error: no key and value\n      hint: write KEY=VALUE, such as optimizer.lr=0.1\n1 error.\n"},
        {"=3", "--set =3: error: no key and value\n      hint: write KEY=VALUE, such as optimizer.lr=0.1\n1 error.\n"},
        {"a..b=3", "--set a..b=3: error: a key is missing\n      hint: write keys as in "
                   "optimizer.lr\n1 error.\n"},
        {"a.=3", "--set a.=3: error: a key is missing\n      hint: write keys as in "
                 "optimizer.lr\n1 error.\n"},
        {"l.x=3", "--set l.x=3: error: 'l' is a list\n      hint: say which item: l[0]\n1 error.\n"},
        {"l[2]=3", "--set l[2]=3: error: 'l' has 2 items, numbered from 0: there is no [2]\n1 error.\n"},
        {"l[-1]=3", "--set l[-1]=3: error: bad list index\n      hint: as in model.layers[2]\n1 error.\n"},
        {"l[99999999999]=3", "--set l[99999999999]=3: error: bad list index\n      hint: as in "
                             "model.layers[2]\n1 error.\n"},
        {"l[0]x=3", "--set l[0]x=3: error: bad key\n      hint: write keys as in optimizer.lr\n1 error.\n"},
        {"s[0]=3", "--set s[0]=3: error: 's' is not a list in the configuration\n1 error.\n"},
        {"s=[1", "--set s=[1: error: did not find expected ',' or ']'\n1 error.\n"},
        {"s=*x", "--set s=*x: error: aliases ('*x') are not allowed\n1 error.\n"},
        {"s={a: 1, a: 2}", "--set s={a: 1, a: 2}: error: duplicate key 'a'\n1 error.\n"},
        {"s=1\nt: 2", "--set s=1?t: 2: error: the value must be on one line\n1 error.\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        parse_good(f, "l: [1, 2]\ns: 3\n");
        assert_fails(ERR_CONFIG, tree_set(f->root, cases[i].set, f->pool, f->e));
        assert_string_equal(config_errors_text(f->e, f->pool), cases[i].report);
    }
    char path[4000] = "a";
    while (strlen(path) < 3000) strcat(path, ".a");
    strcat(path, "=1");
    assert_fails(ERR_CONFIG, tree_set(f->root, path, f->pool, f->e));
}

/* ---- writing ---- */

static void same(const struct node *a, const struct node *b) {
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->count, b->count);
    assert_true((a->key == NULL) == (b->key == NULL));
    if (a->key) assert_string_equal(a->key, b->key);
    if (a->kind == NODE_SCALAR) assert_string_equal(a->text, b->text);
    for (int i = 0; i < a->count; i++) same(a->items[i], b->items[i]);
}

static void round_trip(void **state) {
    struct fixture *f = *state;
    static const char *const texts[] = {
        "a: 1\nb: [x, y z, '1, 2', \"\"]\nc: {d: {e: [[], {}, [1, [2]]]}}\n",
        "a: 'yes: no'\nb: '# c'\nc: '- x'\nd: '[x'\ne: \"\\\"\\\\\\n\\t\\x01\"\nf: ' x '\ng: "
        "'x:'\nh: ':x'\n",
        "a: |\n  two\n  lines\nb: >\n  folded\n  text\nc: ~\nd: null\ne: -5\nf: --\ng: '---'\nh: "
        "'*x'\ni: '&x'\nj: '!x'\n",
        "a: \"\\u2028 \\x85 \\uFEFF \\uFFFE \\x7F \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"\n\"key: "
        "1\": 2\n",
        "l:\n- - - 1\n- a: 1\n  b: {c: 2}\n- d:\n  - e\n  - f: 1\n",
        "path: ./runs/$name-$time\nurl: tcp://h:1\npercent: 50%\nat: '@x'\nmail: a@b\n",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        parse_good(f, texts[i]);
        struct node *first = f->root;
        for (int origin = 0; origin < 2; origin++) {
            parse_good(f, tree_write(first, origin, f->pool));
            same(first, f->root);
        }
    }
}

static void origins(void **state) {
    struct fixture *f = *state;
    parse_good(f, "a: 1\nb:\n  c: [1, 2]\n");
    assert_ok(tree_set(f->root, "b.d=x", f->pool, f->e));
    assert_string_equal(tree_write(f->root, true, f->pool),
                        "a: 1  # c.yaml:1\nb:\n  c: [1, 2]  # c.yaml:3\n  d: x  # --set\n");
}

/* In order of place, the file's before --set's, those without a place last. */
static void error_order(void **state) {
    struct fixture *f = *state;
    parse_good(f, "a: 1\nb: 2\n");
    struct node set = {.source = "--set x=1"};
    config_error(f->e, NULL, false, "nowhere");
    config_error(f->e, &set, false, "third\ndid you mean 'y'?");
    config_error(f->e, node_get(f->root, "b"), false, "second\na note");
    config_error(f->e, node_get(f->root, "a"), true, "first\ndid you mean 'c'?");
    assert_string_equal(config_errors_text(f->e, f->pool), "c.yaml:1:1: error: first\n"
                                                           "    1 | a: 1\n"
                                                           "      | ^ did you mean 'c'?\n"
                                                           "c.yaml:2:4: error: second\n"
                                                           "    2 | b: 2\n"
                                                           "      |    ^\n"
                                                           "      hint: a note\n"
                                                           "--set x=1: error: third\n"
                                                           "      did you mean 'y'?\n"
                                                           "error: nowhere\n"
                                                           "4 errors.\n");
}

/* A value that has been read keeps its place on another tree; the first one stays as it was. */
static void puts_and_copies(void **state) {
    struct fixture *f = *state;
    parse_good(f, "a: {b: 1}\nvalues: [7, {x: [y, 2]}]\nbatch: 64\n");
    const struct node *values = node_get(f->root, "values");
    struct node *copy = tree_copy(f->root, f->pool);
    assert_non_null(copy);
    assert_ok(tree_put(copy, "a.b", values->items[1], f->pool, f->e));
    assert_ok(tree_put(copy, "c.d", values->items[0], f->pool, f->e));
    assert_ok(tree_put(copy, "batch.shards", values->items[0], f->pool, f->e));
    const struct node *b = node_get(node_get(copy, "a"), "b");
    assert_string_equal(node_get(b, "x")->items[1]->text, "2");
    assert_string_equal(b->key, "b");
    assert_true(b->line == 2 && b->col == 13 && b->key_line == 2);
    assert_int_equal(node_get(copy, "c")->line, 2); /* made on the way */
    assert_string_equal(node_get(node_get(copy, "batch"), "")->text, "64");
    assert_string_equal(node_get(node_get(f->root, "a"), "b")->text, "1");
    assert_null(node_get(f->root, "c"));
    assert_int_equal(config_errors_count(f->e), 0);
    assert_fails(ERR_CONFIG, tree_put(copy, "values.x", b, f->pool, f->e));
    assert_fails(ERR_CONFIG, tree_put(copy, "", b, f->pool, f->e));
    assert_non_null(strstr(config_errors_text(f->e, f->pool), "c.yaml:2:13: error: 'values' is a"));
}

static void errors_merge(void **state) {
    struct fixture *f = *state;
    struct config_errors *more;
    parse_good(f, "a: 1\nb: 2\n");
    assert_ok(config_errors_create(&more));
    config_error(f->e, f->root->items[0], false, "wrong");
    config_error(more, f->root->items[0], false, "wrong");
    config_error(more, f->root->items[1], false, "wrong\nmend it");
    config_errors_merge(f->e, more);
    config_errors_merge(f->e, more);
    config_errors_free(more);
    assert_int_equal(config_errors_count(f->e), 2);
    assert_non_null(strstr(config_errors_text(f->e, f->pool), "c.yaml:2:4: error: wrong\n"));
    assert_non_null(strstr(config_errors_text(f->e, f->pool), "mend it"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(places),         TEST(empty_texts), TEST(wrong_texts),     TEST(goes_on),
        TEST(long_lines),     TEST(limits),      TEST(mutations),       TEST(files),
        TEST(standard_input), TEST(sets),        TEST(wrong_sets),      TEST(round_trip),
        TEST(origins),        TEST(error_order), TEST(puts_and_copies), TEST(errors_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
