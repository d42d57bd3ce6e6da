/* What a run goes on through: ranks that are slow, ranks that are lost where there are restarts,
 * and strangers at its ports. It ends with the bits of a run that nobody disturbed. */
#include "engine/base/rng.h"
#include "tests/harness/ports.h"
#include "tests/harness/training.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RANKS = 4 };
static struct program p;
static const char *const nothing[] = {NULL};

static void ended_like(const char *dir, const char *hash) {
    size_t n = strlen(p.err);
    if (p.code) fail_msg("%s: exit code %d: %s", dir, p.code, p.err + (n > 800 ? n - 800 : 0)); /* the end says why */
    assert_string_equal(program_string(&p, "weights_sha256"), hash);
    training_gone();
}

/* ---- slow ranks ---- */

static void slow_rank(void **state) {
    (void)state;
    static const char *const links[] = {"comm.link=shm", "comm.link=tcp"};
    char hash[80];
    snprintf(hash, sizeof hash, "%s", training_hash(600, nothing));
    for (int i = 0; i < 2; i++) {
        /* stopped for four fifths of the time, a rank on a busy machine can miss a heartbeat of a second */
        const char *const more[] = {links[i],          "train=600st",       "comm.emulate.latency=1ms",
                                    "comm.timeout=6s", "comm.heartbeat=3s", NULL};
        training_begin(&p, links[i], more);
        pid_t slow = program_rank(&p, 1 + i, 5);
        for (int k = 0; k < 12; k++) {
            kill(slow, SIGSTOP);
            usleep(80000);
            kill(slow, SIGCONT);
            usleep(20000);
        }
        assert_true(program_wait(&p, 60));
        ended_like(links[i], hash);
    }
}

/* ---- restarts ---- */

/* Kills a random rank once the run has said that it is at a step; it says so again after a restart,
 * behind what it had said before. */
static void kill_at(int rank, int step) {
    char text[32];
    snprintf(text, sizeof text, "step=%d/", step);
    program_wait_text(&p, text, 30);
    kill(program_rank(&p, rank, 5), SIGKILL);
}

static void restarts(void **state) {
    (void)state;
    struct rng_key key = rng_key(5, RNG_TEST);
    char hash[80];
    snprintf(hash, sizeof hash, "%s", training_hash(2000, nothing));
    for (uint64_t i = 0; i < 2; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "again-%d", (int)i);
        const char *const more[] = {i % 2 ? "comm.link=tcp" : "comm.link=shm",
                                    "train=2000st",
                                    "checkpoint=20st",
                                    "comm.emulate.latency=200us",
                                    "run.restarts=3",
                                    NULL};
        training_start(&p, dir, more);
        int first = 10 + (int)rng_below(key, i, 0, 200);
        kill_at((int)rng_below(key, i, 1, RANKS), first);
        kill_at((int)rng_below(key, i, 2, RANKS), first + 30 + (int)rng_below(key, i, 3, 200));
        assert_true(program_wait(&p, 60));
        training_says(&p, "for the 2. time of 3");
        ended_like(dir, hash);
    }
}

static void restarts_used_up(void **state) {
    (void)state;
    const char *const more[] = {"run.restarts=1", NULL};
    training_start(&p, "used-up", more);
    kill_at(1, 20);
    program_wait_text(&p, "starting again", 10);
    kill_at(2, 120);
    training_ends(&p, 2);
    assert_int_equal(p.code, 75);
    training_says(&p, "rank 2 was killed");
    training_gone();
}

static void not_tried_again(const char *dir, const char *setting, int code, const char *text) {
    const char *const more[] = {"run.restarts=3", setting, NULL};
    training_start(&p, dir, more);
    assert_true(program_wait(&p, 20));
    if (p.code != code) fail_msg("%s: exit code %d: %s", dir, p.code, p.err);
    training_says(&p, text);
    assert_null(strstr(p.err, "starting again"));
    training_gone();
}

static void would_fail_again(void **state) {
    (void)state;
    char resume[700], path[640];
    not_tried_again("diverged", "optimizer.lr=1e30", 1, "diverged");
    const char *const more[] = {"train=60st", NULL};
    training_start(&p, "whole", more);
    assert_true(program_wait(&p, 20));
    assert_int_equal(p.code, 0);
    snprintf(path, sizeof path, "%s/ckpt/step-%09d", scratch_path("whole"), 60);
    snprintf(resume, sizeof resume, "checkpoint={every: 50st, resume: %s}", path);
    strcat(path, "/model.safetensors");
    FILE *f = fopen(path, "r+");
    if (!f) fail_msg("no %s", path);
    assert_int_equal(fseek(f, -7, SEEK_END), 0);
    assert_int_equal(fputc(0x55, f), 0x55);
    fclose(f);
    not_tried_again("damaged", resume, 65, "model.safetensors");
}

/* ---- strangers ---- */

static const char http[] = "GET / HTTP/1.1\r\nHost: engine\r\n\r\n";
static const unsigned char greeting[] = {0, 'S', 'P', 0, 0, 0x30, 0, 0}; /* nng's REQ */
static const unsigned char huge[] = {0, 'S', 'P', 0, 0, 0x30, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};

static void garbage(unsigned char *bytes, size_t n, uint64_t turn) {
    struct rng_key key = rng_key(11, RNG_TEST);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)rng_u64(key, turn, i);
}

/* One of each kind, left open. */
static void bother(int port, struct strangers *s, uint64_t turn) {
    unsigned char bytes[4096];
    stranger_send(s, port, http, sizeof http - 1);
    stranger_send(s, port, greeting, sizeof greeting);
    stranger_send(s, port, huge, sizeof huge);
    garbage(bytes, sizeof bytes, turn);
    stranger_send(s, port, bytes, sizeof bytes);
    memcpy(bytes, greeting, sizeof greeting); /* and a message of plausible length */
    memcpy(bytes + sizeof greeting, (const char[8]){0, 0, 0, 0, 0, 0, 2, 0}, 8);
    stranger_send(s, port, bytes, sizeof bytes);
    memset(bytes, 0xff, sizeof bytes);
    stranger_send(s, port, bytes, sizeof bytes);
    stranger_send(s, port, NULL, 0);
}

static void strangers_at_the_ports(void **state) {
    (void)state;
    char hash[80];
    int ports[2 * RANKS], n = 0;
    struct strangers s = {0};
    snprintf(hash, sizeof hash, "%s", training_hash(1200, nothing));
    const char *const more[] = {"comm.link=tcp", "train=1200st", "comm.emulate.latency=1ms", NULL};
    training_begin(&p, "strangers", more);
    n = ports_of(p.pid, ports, 2 * RANKS);
    assert_int_equal(n, 1); /* the store's */
    for (int r = 0; r < RANKS; r++) n += ports_of(program_rank(&p, r, 5), ports + n, 2 * RANKS - n);
    assert_int_equal(n, 1 + RANKS);
    for (uint64_t turn = 0; turn < 4; turn++)
        for (int i = 0; i < n; i++) bother(ports[i], &s, turn);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 500; k++) stranger_send(&s, ports[i], NULL, 0);
        strangers_leave(&s);
    }
    program_wait_text(&p, "rank's port: turned away ", 5);
    if (program_ended(&p)) fail_msg("it had ended before all strangers came: %s", p.err);
    assert_true(program_wait(&p, 60));
    ended_like("strangers", hash);
}

int main(void) {
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        most.rlim_cur = most.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &most);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_rank),
        cmocka_unit_test(restarts),
        cmocka_unit_test(restarts_used_up),
        cmocka_unit_test(would_fail_again),
        cmocka_unit_test(strangers_at_the_ports),
    };
    return cmocka_run_group_tests_name("faults far", tests, NULL, NULL);
}
