/* 'engine run --dashboard' as a browser meets it: while the run goes, at its end, when something is
 * in the way; and the page itself in a real browser, where there is one. */
#include "tests/harness/browser.h"
#include "tests/harness/http.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static struct program p;
static struct pool *pool;
static char page[1 << 20], text[1 << 20];
static int port;

static int set_up(void **state) {
    (void)state;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

/* ---- a client ---- */
static const char *get(const char *target, char *to, size_t room) {
    return http_get(port, target, to, room);
}

static const struct json_value *get_json(const char *target) {
    static const struct json_limits limits = {16, 4096, 4096};
    const struct json_value *root;
    const char *body = get(target, text, sizeof text);
    if (!body) return NULL;
    assert_ok(json_parse(body, strlen(body), limits, pool, &root));
    return root;
}

/* Starts a run with a dashboard on any port, in a folder of that name. */
static void start(const char *name, const char *mode, const char *length, bool shown) {
    static char dir[600], set_mode[40], set_length[40];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(name));
    snprintf(set_mode, sizeof set_mode, "mode=%s", mode);
    snprintf(set_length, sizeof set_length, "train=%s", length);
    program_start(&p, (const char *const[]){"run", "--json", "--set", dir, "--set", set_mode, "--set", set_length,
                                            "--devices", strcmp(mode, "single") ? "cpu:2" : "cpu:1", "--set",
                                            "checkpoint.every=off", "--set", "batch.shards=2",
                                            shown ? "--dashboard=0" : NULL, NULL});
    if (!shown) return;
    port = http_port(p.err_path);
}

struct seen {
    int64_t next, steps, vals, started, ranks, phases;
    bool ended;
    int code;
};

static void see_line(struct seen *s, const char *line, size_t n) {
    static const struct json_limits limits = {16, 4096, 4096};
    const struct json_value *root, *event;
    assert_ok(json_parse(line, n, limits, pool, &root));
    event = json_get(root, "event");
    s->steps += json_get(root, "ms") != NULL;
    s->vals += json_get(root, "val") != NULL;
    s->phases += json_get(root, "phase_ms") != NULL;
    s->started += event && !strcmp(event->text, "started");
}

/* One round of what the page does; false: nobody is there any more. */
static bool look(struct seen *s) {
    char target[64];
    const struct json_value *root = get_json("/api/ranks");
    if (!root) return false;
    int64_t ranks = json_get(root, "ranks")->count;
    if (ranks > s->ranks) s->ranks = ranks;
    bool ended = json_get(root, "ended")->truth;
    s->code = (int)json_get(root, "code")->integer;
    snprintf(target, sizeof target, "/api/metrics?since=%lld", (long long)s->next);
    const char *line = get(target, text, sizeof text);
    if (!line) return false;
    s->next = atoll(strstr(text, "Engine-Next: ") + 13);
    for (const char *end; (end = strchr(line, '\n')); line = end + 1) see_line(s, line, (size_t)(end - line));
    s->ended |= ended;
    return true;
}

/* ---- tests ---- */
/* It shows what goes on, until the end; and the run computes the same as without it. */
static void shows_a_run(void **state) {
    static const char *const modes[] = {"ddp", "dp", "single"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char losses[2][100];
        struct seen s = {0};
        start(modes[i], modes[i], "400st", true);
        const struct timespec pause = {.tv_nsec = 50000000};
        while (!s.ended && look(&s)) nanosleep(&pause, NULL);
        assert_true(program_wait(&p, 60));
        assert_int_equal(p.code, 0);
        snprintf(losses[0], sizeof *losses, "%s", program_string(&p, "losses_sha256"));
        assert_true(s.ended);
        assert_int_equal(s.code, 0);
        assert_int_equal(s.steps, 400);
        assert_int_equal(s.phases, 400);
        assert_int_equal(s.started, 1);
        assert_true(s.vals > 0);
        assert_int_equal(s.ranks, strcmp(modes[i], "single") ? 2 : 0);
        assert_null(get("/", page, sizeof page)); /* it has gone with the run */
        start("plain", modes[i], "400st", false);
        assert_true(program_wait(&p, 60));
        snprintf(losses[1], sizeof *losses, "%s", program_string(&p, "losses_sha256"));
        assert_string_equal(losses[0], losses[1]);
    }
}

static void says_what_it_is(void **state) {
    (void)state;
    start("about", "ddp", "100000st", true);
    const struct json_value *root = get_json("/api/run");
    for (int i = 0; i < 200 && (!root || !json_get(root, "mode")); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        root = get_json("/api/run");
    }
    assert_non_null(root);
    assert_string_equal(json_get(root, "mode")->text, "ddp");
    assert_string_equal(json_get(root, "model")->text, "mlp");
    assert_int_equal(json_get(root, "batch")->integer, 128);
    assert_non_null(get("/", page, sizeof page));
    assert_null(get("/api/../resolved.yaml", page, sizeof page));
    /* a rank that dies is told of, with the run's end */
    struct seen s = {0};
    kill(program_rank(&p, 1, 20), SIGKILL);
    while (!s.ended && look(&s)) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 75);
    assert_true(s.ended);
    assert_int_equal(s.code, 75);
}

static void what_is_in_the_way_is_named(void **state) {
    (void)state;
    char option[64], dir[600];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a) | listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    snprintf(option, sizeof option, "--dashboard=127.0.0.1:%d", ntohs(a.sin_port));
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("taken"));
    program_run(&p, 30, "run", "--set", dir, option, NULL);
    close(fd);
    assert_int_equal(p.code, 69);
    assert_non_null(strstr(p.err, "is taken"));
    assert_non_null(strstr(p.err, "hint: --dashboard=127.0.0.1:"));
    assert_int_not_equal(access(scratch_path("taken"), F_OK), 0); /* nothing has begun */
    static const char *const wrong[] = {"on", "127.0.0.1", ":80", "::1:80", "localhost:70000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(option, sizeof option, "--dashboard=%s", wrong[i]);
        program_run(&p, 30, "run", option, NULL);
        assert_int_equal(p.code, 78);
        assert_non_null(strstr(p.err, "'log.dashboard' is not an address"));
    }
    program_run(&p, 30, "run", "--dashboard=no.such.host.invalid:0", NULL);
    assert_int_equal(p.code, 69);
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("open"));
    program_run(&p, 60, "run", "--set", dir, "--set", "train=5st", "--dashboard=0.0.0.0:0", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.err, "open to everyone"));
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("six"));
    program_run(&p, 60, "run", "--set", dir, "--set", "train=1st", "--dashboard=[::1]:0", NULL);
    if (p.code) program_assert_code(&p, 69); /* a host without IPv6 */
}

/* ---- a real browser ---- */
static void put_string(FILE *f, const char *name, const char *value) {
    struct json j = {0};
    json_string(&j, NULL, value);
    assert_ok(json_done(&j));
    fprintf(f, "const %s = %s;\n", name, j.text);
    json_fini(&j);
}

/* The page by itself, with answers that were given before and these lines of metrics (NULL: those
 * that are there), as it looks at a width: it tells what it sees of itself to the page around it. */
static void put_recorded(const char *metrics) {
    static const char fetch[] =
        "let asked = false;\n"
        "window.fetch = async u => {\n"
        "  const path = u.split('?')[0], first = !asked;\n"
        "  if (path === '/api/metrics') asked = true;\n"
        "  const t = path === '/api/run' ? RUN : path === '/api/ranks' ? RANKS : first ? METRICS "
        ": '';\n"
        "  return {ok: true, json: async () => JSON.parse(t), text: async () => t, headers: {get: () => "
        "'1'}};\n"
        "};\n"
        "let errors = 0;\n"
        "addEventListener('error', () => errors++);\n"
        "addEventListener('unhandledrejection', () => errors++);\n"
        "const all = s => [...document.querySelectorAll(s)];\n"
        "setTimeout(() => {\n"
        "  const big = all('.plot svg').filter(s => s.getBoundingClientRect().width > 150 &&\n"
        "    s.getBoundingClientRect().height > 100).length;\n"
        "  const outside = all('.card, svg text').filter(e => e.getBoundingClientRect().right >\n"
        "    innerWidth + 1 || e.getBoundingClientRect().left < -1).length;\n"
        "  const small = all('*').filter(e => parseFloat(getComputedStyle(e).fontSize) < "
        "11).length;\n"
        "  const s = document.scrollingElement;\n"
        "  parent.postMessage(`seen ${innerWidth} over ${Math.max(0, s.scrollWidth - innerWidth)} "
        "plots ${big} ` +\n"
        "    `lines ${all('.plot path').length} outside ${outside} small ${small} rows "
        "${all('tbody tr').length} ` +\n"
        "    `errors ${errors} ${document.getElementById('state').textContent}`, '*');\n"
        "}, 1500);\n";
    FILE *f = fopen(scratch_path("page.html"), "w");
    assert_non_null(f);
    const char *body = get("/", page, sizeof page), *script = strstr(body, "<script>");
    assert_non_null(script);
    fwrite(body, 1, (size_t)(script - body), f);
    fputs("<script>\n", f);
    put_string(f, "RUN", get("/api/run", text, sizeof text));
    put_string(f, "RANKS", get("/api/ranks", text, sizeof text));
    put_string(f, "METRICS", metrics ? metrics : get("/api/metrics?since=0", text, sizeof text));
    fprintf(f, "%s</script>\n%s", fetch, script);
    assert_int_equal(fclose(f), 0);
    f = fopen(scratch_path("around.html"), "w");
    assert_non_null(f);
    fputs("<!doctype html><title>x</title><pre id=told></pre><script>addEventListener('message', "
          "e => { document.getElementById('told').textContent += e.data + '\\n'; });</script>"
          "<iframe src=page.html style='width:1280px;height:900px;border:0'></iframe>"
          "<iframe src=page.html style='width:360px;height:900px;border:0'></iframe>",
          f);
    assert_int_equal(fclose(f), 0);
}

static void a_browser_shows_it(void **state) {
    (void)state;
    const char *name = browser_find();
    char url[700];
    if (!name) return;
    start("browsed", "ddp", "1000000st", true);
    struct seen s = {0};
    while ((s.vals < 2 || s.ranks < 2) && look(&s)) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    const char *dom = browser_dom(name, url); /* as it is served: the real answers, the real policy */
    assert_non_null(strstr(dom, ">running</span>"));
    assert_non_null(strstr(dom, "<path"));
    assert_non_null(strstr(dom, "mlp, ddp on cpu:2, batch 128"));
    put_recorded(NULL);
    kill(p.pid, SIGINT);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 130);
    snprintf(url, sizeof url, "file://%s", scratch_path("around.html"));
    dom = browser_dom(name, url);
    for (int i = 0; i < 2; i++) {
        char wanted[100];
        snprintf(wanted, sizeof wanted, "seen %d over 0 plots 4 lines 10 outside 0 small 0 rows 2 errors 0 running",
                 i ? 360 : 1280);
        if (!strstr(dom, wanted)) fail_msg("not '%s': %.400s", wanted, dom);
    }
}

/* A loss that is no number is left out, and an accuracy that nobody measured is none: neither is 0.
 */
static void what_is_not_there_is_not_shown(void **state) {
    (void)state;
    const char *name = browser_find();
    char url[700];
    if (!name) return;
    start("recorded", "ddp", "1000000st", true);
    put_recorded("{\"step\":1,\"loss\":4,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":2}\n"
                 "{\"step\":2,\"loss\":3,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":2}\n"
                 "{\"step\":2,\"val\":{\"loss\":3.5,\"accuracy\":null}}\n"
                 "{\"step\":3,\"loss\":null,\"accuracy\":null,\"lr\":1,\"samples\":8,\"ms\":2}\n");
    kill(p.pid, SIGINT);
    assert_true(program_wait(&p, 60));
    snprintf(url, sizeof url, "file://%s", scratch_path("page.html"));
    const char *dom = browser_dom(name, url);
    assert_non_null(strstr(dom, "<b>3.5</b><span>validation loss</span>"));
    assert_non_null(strstr(dom, "<b>-</b><span>validation accuracy</span>"));
    assert_non_null(strstr(dom, "<b>-</b><span>training loss</span>"));
    const char *plot = strstr(dom, "aria-label=\"loss by step\""), *line;
    assert_non_null(plot);
    line = strstr(plot, "<path d=\"M");
    assert_non_null(line);
    int points = 0;
    for (const char *c = line + 9; *c && *c != '"'; c++) points += *c == 'M' || *c == 'L';
    assert_int_equal(points, 2);
}

/* The numbers of a path's points: x and y in turn; how many points. */
static int points_of(const char *path, double *out, int most) {
    int n = 0;
    for (const char *c = path; *c && *c != '"' && n < most; c++)
        if (*c == 'M' || *c == 'L') n += sscanf(c + 1, "%lf %lf", &out[2 * n], &out[2 * n + 1]) == 2;
    return n;
}

static void replace(const char *path, const char *what, const char *by) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    char *at = strstr(text, what);
    assert_non_null(at);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what));
    assert_int_equal(fclose(f), 0);
}

/* The smoothed curve beside the raw one is the mean that forgets by one half, and along time a step that took five
 * times as long is five times as wide. */
static void smoothing_and_time(void **state) {
    (void)state;
    enum { N = 4 };
    static const double loss[N] = {4, 3, 2.5, 1}, mean[N] = {4, 10. / 3, 20. / 7, 1.8666666666666667};
    const char *name = browser_find();
    char url[700];
    double raw[2 * N], smooth[2 * N];
    if (!name) return;
    start("smoothed", "ddp", "1000000st", true);
    put_recorded("{\"step\":1,\"loss\":4,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":1000}\n"
                 "{\"step\":2,\"loss\":3,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":1000}\n"
                 "{\"step\":3,\"loss\":2.5,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":1000}\n"
                 "{\"step\":4,\"loss\":1,\"accuracy\":0.5,\"lr\":1,\"samples\":8,\"ms\":5000}\n");
    kill(p.pid, SIGINT);
    assert_true(program_wait(&p, 60));
    replace(scratch_path("page.html"), "step=\"0.02\" value=\"0\"", "step=\"0.02\" value=\"0.5\"");
    replace(scratch_path("page.html"), "<option value=\"time\">", "<option value=\"time\" selected>");
    snprintf(url, sizeof url, "file://%s", scratch_path("page.html"));
    const char *plot = strstr(browser_dom(name, url), "aria-label=\"loss by step\"");
    assert_non_null(plot);
    const char *first = strstr(plot, "<path d=\""), *second = first ? strstr(first + 9, "<path d=\"") : NULL;
    assert_true(second && second < strstr(plot, "</svg>"));
    assert_int_equal(points_of(first + 9, raw, N), N);
    assert_int_equal(points_of(second + 9, smooth, N), N);
    double pixels = (raw[2 * N - 1] - raw[1]) / (loss[0] - loss[N - 1]);
    for (int i = 0; i < N; i++) {
        double value = loss[0] - (smooth[2 * i + 1] - raw[1]) / pixels;
        if (value < mean[i] - 0.01 || value > mean[i] + 0.01) fail_msg("point %d is %g, not %g", i, value, mean[i]);
        assert_true(smooth[2 * i] == raw[2 * i]);
    }
    double wide = (raw[6] - raw[4]) / (raw[4] - raw[2]);
    if (wide < 4.9 || wide > 5.1) fail_msg("five seconds are %g times as wide as one", wide);
    assert_non_null(strstr(plot, ">time in steps, s</text>"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shows_a_run),
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(what_is_in_the_way_is_named),
        cmocka_unit_test(a_browser_shows_it),
        cmocka_unit_test(what_is_not_there_is_not_shown),
        cmocka_unit_test(smoothing_and_time),
    };
    return cmocka_run_group_tests_name("live", tests, set_up, tear_down);
}
