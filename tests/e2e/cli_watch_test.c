/* 'engine dashboard': the answers about a finished run are those of its files, a run of another process is followed, a
 * folder lists its runs; and the page in a real browser, where there is one. */
#include "tests/harness/browser.h"
#include "tests/harness/http.h"

#include "engine/base/file.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct program server, p;
static struct pool *pool;
static char top[600], text[1 << 20], more[1 << 20];
static int port;
static const struct json_limits limits = {16, 1 << 16, 1 << 16};

static const char *at(const char *name) {
    static char path[8][800];
    static int turn;
    char *out = path[turn++ % 8];
    snprintf(out, sizeof *path, "%s/%s", top, name);
    return out;
}

static void start_run(struct program *run, const char *name, const char *length) {
    static char dir[700], train[40];
    snprintf(dir, sizeof dir, "log.dir=%s/%s", top, name);
    snprintf(train, sizeof train, "train=%s", length);
    program_start(run, (const char *const[]){"run", "--quiet", "--json", "--set", dir, "--mode", "ddp", "--devices",
                                             "cpu:2", "--set", train, "--set",
                                             "data={set: digits, train: 1000, val: 200}", "--set", "eval=5st", NULL});
}

static void finish(struct program *run, int code) {
    assert_true(program_wait(run, 60));
    if (run->code != code) fail_msg("exit code %d: %s", run->code, run->err);
}

static int set_up(void **state) {
    (void)state;
    snprintf(top, sizeof top, "%s", scratch_path("all"));
    if (pool_create(&pool) != ERR_NONE) return -1;
    start_run(&p, "one", "30st");
    finish(&p, 0);
    start_run(&p, "two", "10st");
    finish(&p, 0);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static void serve(const char *path) {
    program_start(&server, (const char *const[]){"dashboard", path, "--at", "0", NULL});
    port = http_port(server.out_path);
}

/* Ctrl-C is how it is meant to end. */
static void end(int signal) {
    kill(server.pid, signal);
    finish(&server, 0);
    assert_null(http_get(port, "/", text, sizeof text));
}

static const struct json_value *ask(const char *target) {
    const struct json_value *root;
    const char *body = http_get(port, target, text, sizeof text);
    if (!body) fail_msg("no answer to %s: %s", target, text);
    assert_ok(json_parse(body, strlen(body), limits, pool, &root));
    return root;
}

static const char *read_file(const char *path, size_t *n) {
    char *words;
    assert_ok(file_read(path, 1 << 20, pool, &words, n));
    return words;
}

/* From byte N on, again and again until nothing comes: exactly the file. */
static void metrics_are(const char *name, const char *query) {
    size_t n, got = 0;
    char target[200];
    const char *file = read_file(at(name), &n);
    for (int i = 0; got < n; i++) {
        snprintf(target, sizeof target, "/api/metrics?%ssince=%zu", query, got);
        const char *body = http_get(port, target, text, sizeof text);
        assert_non_null(body);
        size_t length = strlen(body);
        if (i > 100 || length == 0 || got + length > n || memcmp(file + got, body, length) != 0)
            fail_msg("not what the file has from byte %zu on: %.200s", got, body);
        got += length;
        assert_int_equal(atoll(strstr(text, "Engine-Next: ") + 13), got);
    }
}

static void a_finished_run(void **state) {
    (void)state;
    serve(at("one"));
    const struct json_value *run = ask("/api/run"), *ranks = ask("/api/ranks");
    assert_string_equal(json_get_text(run, "mode"), "ddp");
    assert_string_equal(json_get_text(run, "model"), "mlp");
    assert_string_equal(json_get_text(run, "run_dir"), at("one"));
    assert_int_equal(json_get(run, "batch")->integer, 128);
    assert_int_equal(json_get(run, "count")->integer, 2);
    assert_string_equal(json_get_text(json_get(run, "settings"), "batch.size"), "128");
    assert_string_equal(json_get_text(json_get(run, "settings"), "data.train"), "1000");
    assert_string_equal(json_get_text(ranks, "state"), "finished");
    assert_true(json_get(ranks, "ended")->truth && json_get(ranks, "watched")->truth);
    assert_int_equal(json_get(ranks, "code")->integer, 0);
    assert_int_equal(json_get(ranks, "ranks")->count, 2);
    assert_string_equal(json_get_text(&json_get(ranks, "ranks")->children[1], "state"), "ended");
    metrics_are("one/metrics.jsonl", "");
    assert_null(http_get(port, "/api/runs", text, sizeof text)); /* there is one */
    assert_int_equal(strncmp(text, "HTTP/1.1 404", 12), 0);
    assert_null(http_get(port, "/api/run?run=0123456789abcdef", text, sizeof text));
    end(SIGINT);
}

static const char *id_of(const struct json_value *runs, const char *name) {
    for (int i = 0; i < runs->count; i++)
        if (!strcmp(json_get_text(&runs->children[i], "name"), name)) return json_get_text(&runs->children[i], "id");
    fail_msg("no '%s' in the list", name);
    return NULL;
}

static void a_folder(void **state) {
    (void)state;
    char target[200], query[64];
    serve(top);
    assert_true(json_get(ask("/api/run"), "folder")->truth);
    const char *body = http_get(port, "/api/runs", text, sizeof text);
    assert_non_null(body);
    program_run(&p, 30, "runs", top, "--all", "--json", NULL);
    assert_string_equal(body, p.out); /* one table */
    const struct json_value *runs = json_get(ask("/api/runs"), "runs");
    static const char *const names[] = {"one", "two"};
    for (int i = 0; i < 2; i++) {
        snprintf(query, sizeof query, "run=%s&", id_of(runs, names[i]));
        snprintf(target, sizeof target, "/api/run?run=%s", id_of(runs, names[i]));
        assert_string_equal(json_get_text(ask(target), "run_dir"), at(names[i]));
        metrics_are(i ? "two/metrics.jsonl" : "one/metrics.jsonl", query);
    }
    assert_null(http_get(port, "/api/run?run=0123456789abcdef", text, sizeof text));
    assert_int_equal(strncmp(text, "HTTP/1.1 404", 12), 0);
    assert_null(http_get(port, "/api/metrics", text, sizeof text)); /* of which? */
    end(SIGTERM);
}

/* The table since an earlier version; *next: the version now. */
static const struct json_value *rows_since(int64_t since, int64_t *next) {
    char target[64];
    snprintf(target, sizeof target, since ? "/api/runs?since=%lld" : "/api/runs", (long long)since);
    const struct json_value *root = ask(target);
    *next = atoll(strstr(text, "Engine-Next: ") + 13);
    return root;
}

/* A page that has the table is told what has changed alone. */
static void a_page_asks_what_is_new(void **state) {
    (void)state;
    int64_t first, next, later;
    const struct json_value *root;
    serve(top);
    assert_null(json_get(rows_since(0, &first), "since"));
    root = rows_since(first, &next);
    assert_true(next == first && json_get(root, "since")->integer == first);
    assert_true(json_get(root, "runs")->count == 0 && json_get(root, "experiments")->count == 0);
    program_run(&p, 30, "runs", "--note", "a <b>word</b>", "--tag", "good", at("two"), NULL);
    assert_int_equal(p.code, 0);
    for (int i = 0;; i++) { /* a table is read at most once a second */
        root = rows_since(first, &later);
        if (later > first) break;
        if (i > 600) fail_msg("the note does not come");
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    const struct json_value *row = json_get(root, "runs")->children;
    assert_int_equal(json_get(root, "runs")->count, 1);
    assert_string_equal(json_get_text(row, "name"), "two");
    assert_string_equal(json_get_text(row, "note"), "a <b>word</b>");
    assert_string_equal(json_get(row, "tags")->children->text, "good");
    char target[64];
    snprintf(target, sizeof target, "/api/run?run=%s", json_get_text(row, "id"));
    assert_string_equal(json_get_text(ask(target), "note"), "a <b>word</b>");
    assert_string_equal(json_get_text(ask(target), "tags"), "good");
    assert_int_equal(json_get(rows_since(later, &next), "runs")->count, 0);
    /* a version that this server has not had: all */
    root = rows_since(first - 1, &next);
    assert_true(!json_get(root, "since") && json_get(root, "runs")->count == 2);
    root = rows_since(later + 100000000, &next);
    assert_true(!json_get(root, "since") && json_get(root, "runs")->count == 2);
    end(SIGINT);
    assert_int_equal(unlink(at("two/note.json")), 0);
}

static void another_process_is_followed(void **state) {
    (void)state;
    long steps = 0, before = -1, next = 0;
    int grown = 0;
    start_run(&p, "long", "10000000st");
    for (int i = 0; access(at("long/run.json"), F_OK) != 0 && i < 3000; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    serve(at("long"));
    for (int i = 0; grown < 3; i++) {
        char target[100];
        snprintf(target, sizeof target, "/api/metrics?since=%ld", next);
        const char *line = http_get(port, target, text, sizeof text);
        assert_non_null(line);
        next = atol(strstr(text, "Engine-Next: ") + 13);
        for (; (line = strstr(line, "\"ms\":")); line++) steps++;
        grown += steps > before && steps > 0;
        before = steps;
        if (i > 600) fail_msg("it does not go on: %ld steps", steps);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    const struct json_value *ranks = ask("/api/ranks");
    assert_string_equal(json_get_text(ranks, "state"), "running");
    assert_false(json_get(ranks, "ended")->truth);
    assert_string_equal(json_get_text(&json_get(ranks, "ranks")->children[0], "state"), "runs");
    kill(p.pid, SIGINT);
    finish(&p, 130);
    ranks = ask("/api/ranks");
    assert_string_equal(json_get_text(ranks, "state"), "stopped");
    assert_true(json_get(ranks, "ended")->truth);
    end(SIGINT);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    char address[64];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a) | listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(address, sizeof address, "%d", ntohs(a.sin_port));
    program_run(&p, 30, "dashboard", top, "--at", address, NULL);
    close(fd);
    assert_int_equal(p.code, 69);
    assert_non_null(strstr(p.err, "is taken"));
    assert_non_null(strstr(p.err, "hint: --at 127.0.0.1:"));
    program_run(&p, 30, "dashboard", "/nowhere", NULL);
    assert_int_equal(p.code, 66);
    program_run(&p, 30, "dashboard", at("one/run.json"), NULL);
    assert_int_equal(p.code, 66);
    assert_non_null(strstr(p.err, "is a file"));
    program_run(&p, 30, "dashboard", top, "--at", "here", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "is not an address"));
}

/* Files that are damaged, or would never end: an answer, and the server goes on. */
static void hostile_files_are_answered(void **state) {
    (void)state;
    char target[100];
    static const char odd[] =
        "null\n{\"step\":\"<b>\",\"ms\":1}\n\xff\xfe\n{\n"
        "{\"step\":1,\"ms\":2,\"loss\":\"<i>\",\"phase_ms\":{\"load\":[]}}\n"
        "{\"step\":2,\"val\":{\"loss\":\"<i>\"}}\n{\"step\":2,\"ms\":2,\"loss\":3,\"samples\":1}\n";
    assert_ok(file_make_folders(at("odd/flight")));
    save_text(at("odd/metrics.jsonl"), odd);
    save_text(at("odd/resolved.yaml"), "mode: [\n");
    save_text(at("odd/run.json"), "[1");
    save_text(at("odd/flight/rank0.bin"), "no recording");
    assert_ok(file_make_folders(at("fifo")));
    assert_int_equal(mkfifo(at("fifo/metrics.jsonl"), 0600), 0);
    save_text(at("fifo/run.json"), "{}");
    serve(top);
    const struct json_value *runs = json_get(ask("/api/runs"), "runs");
    static const char *const names[] = {"odd", "fifo"};
    for (int i = 0; i < 2; i++) {
        const char *id = id_of(runs, names[i]);
        snprintf(target, sizeof target, "/api/run?run=%s", id);
        assert_string_equal(json_get_text(ask(target), "mode"), "");
        snprintf(target, sizeof target, "/api/ranks?run=%s", id);
        assert_string_equal(json_get_text(ask(target), "state"), "unreadable");
        snprintf(target, sizeof target, "/api/metrics?run=%s", id);
        const char *body = http_get(port, target, text, sizeof text);
        if (i == 0) assert_string_equal(body, odd); /* as it is: the page takes it for text */
        if (i == 1) assert_int_equal(strncmp(text, "HTTP/1.1 500", 12), 0);
    }
    const char *name = browser_find();
    snprintf(more, sizeof more, "http://127.0.0.1:%d/?run=%s", port, id_of(runs, "odd"));
    if (name) assert_non_null(strstr(browser_dom(name, more), ">unreadable: "));
    end(SIGINT);
    assert_ok(file_remove_tree(at("odd")));
    assert_ok(file_remove_tree(at("fifo")));
}

static void a_browser_shows_them(void **state) {
    (void)state;
    const char *name = browser_find(), *dom;
    char url[200];
    if (!name) return;
    serve(top);
    const struct json_value *runs = json_get(ask("/api/runs"), "runs");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    dom = browser_dom(name, url);
    snprintf(more, sizeof more, "<a href=\"/?run=%s\">one</a>", id_of(runs, "one"));
    if (!strstr(dom, more)) fail_msg("no '%s' in %s", more, strstr(dom, "</style>"));
    assert_non_null(strstr(dom, ">finished</td>"));
    snprintf(url, sizeof url, "http://127.0.0.1:%d/?run=%s", port, id_of(runs, "one"));
    dom = browser_dom(name, url);
    assert_non_null(strstr(dom, ">finished</span>"));
    assert_non_null(strstr(dom, "mlp, ddp on cpu:2, batch 128"));
    assert_non_null(strstr(dom, ">steps</text>"));
    assert_non_null(strstr(dom, "<b>30 / 30</b>"));
    /* validation at 5, 10, ... 30: six points on the loss and six on the accuracy */
    int points = 0;
    for (const char *c = dom; (c = strstr(c, "<circle ")); c++) points++;
    assert_int_equal(points, 12);
    end(SIGINT);
}

static int count(const char *in, const char *part) {
    int n = 0;
    for (; (in = strstr(in, part)); in += strlen(part)) n++;
    return n;
}

/* A run of two steps with these losses, in a cell of an experiment. */
static void put_run(const char *dir, int first, int second) {
    char lines[400], path[100];
    snprintf(lines, sizeof lines,
             "{\"step\":0,\"event\":\"started\",\"run_id\":\"aa\",\"steps\":2,\"per_epoch\":2}\n"
             "{\"step\":1,\"epoch\":0,\"loss\":%d,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":2}\n"
             "{\"step\":2,\"epoch\":0,\"loss\":%d,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":2}\n",
             first, second);
    assert_ok(file_make_folders(at(dir)));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    save_text(at(path), lines);
    snprintf(path, sizeof path, "%s/run.json", dir);
    save_text(at(path), "{\"run_id\":\"aa\",\"exit\":75}");
    snprintf(path, sizeof path, "%s/resolved.yaml", dir);
    save_text(at(path), first == 1 ? "seed: 1\nmode: dp\n" : "seed: 2\nmode: dp\n");
}

/* An experiment opens into sides with their means; ticked runs are drawn over each other, and a side as its mean. */
static void a_browser_compares(void **state) {
    (void)state;
    const char *name = browser_find(), *dom;
    char url[300], first[20], second[20];
    if (!name) return;
    put_run("x/cells/fast-0011aabb/run-01", 1, 2);
    put_run("x/cells/fast-0011aabb/run-02", 3, 4);
    save_text(at("x/compare.lock"), "");
    save_text(at("x/note.json"), "{\"note\":\"<i>odd</i>\",\"tags\":[\"first\"]}");
    serve(top);
    const struct json_value *root = ask("/api/runs"), *runs = json_get(root, "runs");
    const char *x = id_of(json_get(root, "experiments"), "x");
    snprintf(first, sizeof first, "%s", id_of(runs, "x/cells/fast-0011aabb/run-01"));
    snprintf(second, sizeof second, "%s", id_of(runs, "x/cells/fast-0011aabb/run-02"));
    snprintf(url, sizeof url, "http://127.0.0.1:%d/#find=first&open=%s", port, x);
    dom = browser_dom(name, url);
    assert_non_null(strstr(dom, "fast (2 runs)"));
    assert_non_null(strstr(dom, "<td class=\"n\">3</td>")); /* the mean of the last losses, 2 and 4 */
    assert_non_null(strstr(dom, "first; &lt;i&gt;odd&lt;/i&gt;"));
    assert_null(strstr(dom, ">one</a>")); /* which was not looked for */
    snprintf(url, sizeof url, "http://127.0.0.1:%d/#ticked=%s,%s&compare=1", port, first, second);
    dom = browser_dom(name, url);
    assert_non_null(strstr(dom, "x: fast (2 runs)"));
    /* Means 2 and 3 in a plot from 1 to 4, 182 pixels high: a line from a third to two thirds of its height, and a band. */
    assert_non_null(strstr(dom, "d=\"M52.0 129.3L"));
    assert_non_null(strstr(dom, " 68.7\""));
    assert_non_null(strstr(dom, "d=\"M52.0 190.0L"));
    assert_non_null(strstr(dom, "id=\"sort-set:seed\"")); /* the key in which they differ */
    assert_null(strstr(dom, "id=\"sort-set:mode\""));
    end(SIGINT);
    assert_ok(file_remove_tree(at("x")));
}

/* Of many runs some stand in the page, and the others are counted. */
static void a_browser_shows_some_of_many(void **state) {
    (void)state;
    enum { MANY = 250, SHOWN = 200 };
    const char *name = browser_find(), *dom;
    char dir[40], url[100];
    if (!name) return;
    for (int i = 0; i < MANY; i++) {
        snprintf(dir, sizeof dir, "many/r%03d", i);
        assert_ok(file_make_folders(at(dir)));
        snprintf(dir, sizeof dir, "many/r%03d/run.json", i);
        save_text(at(dir), "{\"run_id\":\"aa\"}");
    }
    serve(at("many"));
    snprintf(url, sizeof url, "http://127.0.0.1:%d/#sort=name,1", port);
    dom = browser_dom(name, url);
    assert_int_equal(count(dom, "<a href=\"/?run="), SHOWN);
    assert_true(strstr(dom, ">r199</a>") && !strstr(dom, ">r200</a>"));
    assert_non_null(strstr(dom, ">250 runs</span>"));
    assert_non_null(strstr(dom, ">50 more of 50</button>"));
    end(SIGINT);
    assert_ok(file_remove_tree(at("many")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_finished_run),
        cmocka_unit_test(a_folder),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(hostile_files_are_answered),
        cmocka_unit_test(a_browser_shows_them),
        cmocka_unit_test(a_page_asks_what_is_new),
        cmocka_unit_test(a_browser_compares),
        cmocka_unit_test(a_browser_shows_some_of_many),
        cmocka_unit_test(another_process_is_followed),
    };
    return cmocka_run_group_tests_name("watch", tests, set_up, tear_down);
}
