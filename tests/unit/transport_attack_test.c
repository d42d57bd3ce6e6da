/* An attacker between two hosts, who mistreats each piece of how two ranks join and of what they send: every time the
 * sums are right, or both ranks fail with words; a sum is never wrong, and nothing hangs. */
#include "tests/harness/harness.h"

#include "engine/base/log.h"
#include "tests/conformance/ranks.h"
#include "tests/unit/proxy.h"

#include <signal.h>

enum { CALLS = 12, COUNT = 700 };
static int attacks = 5; /* of each kind; ENGINE_ATTACKS sets it */

static void add_up(struct rank *r) {
    int64_t buf[COUNT];
    for (int k = 0; k < CALLS; k++) {
        for (int i = 0; i < COUNT; i++) buf[i] = i * (k + 1) + r->index;
        int64_t n = k % 2 ? COUNT : 3;
        rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, n, DTYPE_I64, REDOP_SUM));
        if (r->err) return;
        for (int i = 0; i < n; i++) check(buf[i] == 2 * i * (k + 1) + 1, "call %d, element %d", k, i);
    }
}

/* Both ranks' ports are reached through the attacker; they are on two hosts. */
static void run_attacked(struct proxy *p, struct rank ranks[2]) {
    struct ranks all = {.world = 2, .link = "tcp", .timeout = 1, .heartbeat = 1, .fn = add_up};
    ranks_meet(&all);
    proxy_open(p, all.seat[0].address, sizeof all.seat[0].address);
    all.seat[1].host = 1, all.seat[1].local = 0;
    all.roster.hosts = 2;
    pthread_t id[2];
    for (int i = 0; i < 2; i++) {
        ranks[i] = (struct rank){.of = &all, .index = i};
        assert_int_equal(pthread_create(&id[i], NULL, rank_thread, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++) pthread_join(id[i], NULL);
    proxy_close(p);
    ranks_part(&all);
}

/* "": the sums are right. */
static const char *outcome(const struct rank *r) {
    if (*r->wrong && !strstr(r->wrong, "group_open: ")) fail_msg("%s", r->wrong);
    if (r->err && !*r->message) fail_msg("rank %d: an error without words", r->index);
    return r->message;
}

static void every_piece_is_attacked(void **state) {
    static const char *const names[] = {"left alone", "changed", "dropped", "repeated", "swapped", "cut", "replayed"};
    struct proxy earlier = {.record = true};
    struct rank ranks[2];
    unsigned seed = 1;
    (void)state;
    run_attacked(&earlier, ranks);
    assert_string_equal(outcome(&ranks[0]), "");
    assert_string_equal(outcome(&ranks[1]), "");
    int pieces = earlier.pieces;
    for (enum attack a = ATTACK_FLIP; a < ATTACKS; a++) {
        int good = 0;
        for (int i = 0; i < attacks; i++) {
            struct proxy p = {.attack = a, .bit = (unsigned)rand_r(&seed)};
            p.at = 1 + (int)((unsigned)rand_r(&seed) % (unsigned)pieces);
            memcpy(p.old, earlier.old, sizeof p.old);
            p.n_old = (size_t)earlier.n_old;
            run_attacked(&p, ranks);
            good += !*outcome(&ranks[0]) && !*outcome(&ranks[1]);
        }
        print_message("%d %s: %d with right sums, %d failed by name\n", attacks, names[a], good, attacks - good);
    }
}

int main(void) {
    const char *asked = getenv("ENGINE_ATTACKS");
    log_set_level(LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    if (asked) attacks = atoi(asked);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_piece_is_attacked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
