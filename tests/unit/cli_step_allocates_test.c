/* A step allocates nothing: not in the loader, the graph, the group, the update or the metrics. The
 * modes run as they are; only their step is wrapped, to count from the fifth to the last, and the
 * ranks of ddp are threads here, so that one process can count for all. */
#include "tests/harness/harness.h"

#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "modes/place/place.h"
#include "transport/group.h"
#include "transport/launch/launch.h"

#include <stdatomic.h>
#include <stdio.h>

enum { WARM = 5, STEPS = 40 };
static enum error (*real_step)(struct mode *m, struct learned *out);
static atomic_int steps;
static int ranks;
static long counted;

static enum error counted_step(struct mode *m, struct learned *out) {
    int n = atomic_fetch_add(&steps, 1);
    if (n == WARM * ranks) count_allocations_begin();
    if (n == (STEPS - 1) * ranks) counted = count_allocations_end();
    return real_step(m, out);
}

struct start {
    const struct job *job;
    int fd;
};

static enum error ddp_thread(void *user, int rank) {
    const struct start *s = user;
    struct meeting *meeting;
    TRY(meeting_join(s->fd, ranks, &meeting));
    const struct place place = {{.link = "shm", .size = ranks, .meeting = meeting}, "auto"};
    enum error err = trainer_run(s->job, rank, &place);
    meeting_free(meeting);
    return err;
}

static enum error launch_ddp(const struct job *job, int *code) {
    struct meeting *meeting;
    *code = 0;
    TRY(meeting_create_shared(ranks, &meeting));
    struct start s = {job, meeting_fd(meeting)};
    enum error err = launch_threads(ranks, ddp_thread, &s);
    meeting_free(meeting);
    return err;
}

static long run(const char *mode, const char *devices, const char *extra, int count) {
    char dir[600], train[32];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("run-$time"));
    snprintf(train, sizeof train, "train=%dst", STEPS);
    struct cli_config c = {0};
    const char *sets[] = {mode,
                          devices,
                          extra,
                          dir,
                          train,
                          "threads=1",
                          "eval=end",
                          "checkpoint=off",
                          "data={set: digits, train: 640, val: 10}",
                          "batch={size: 64, shards: 4}",
                          "optimizer={name: adam, clip: 1}",
                          "model=lenet"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) assert_ok(cli_set(&c, sets[i]));
    struct run_settings s;
    assert_ok(cli_load(&c, &s));
    struct mode_row counting = *s.mode;
    struct step_ops ops = *counting.step;
    real_step = ops.run;
    ops.run = counted_step;
    counting.step = &ops;
    if (counting.place == PLACE_PROCESSES) counting.launch = launch_ddp;
    steps = 0;
    ranks = count;
    counted = -1;
    struct job job = {.settings = &s,
                      .mode = &counting,
                      .process = {.rank = -1},
                      .processes = 1,
                      .quiet = true,
                      .console_out = -1,
                      .console_err = 2};
    int code;
    assert_ok(cli_train(&job, NULL, &code));
    run_settings_free(&s);
    print_message("%s, %s: %ld allocations in %d steps\n", mode, extra, counted, STEPS - WARM);
    return counted;
}

static void no_mode_allocates_in_a_step(void **state) {
    (void)state;
    assert_int_equal(run("mode=single", "devices=cpu:1", "data.workers=2", 1), 0);
    assert_int_equal(run("mode=dp", "devices=cpu:2", "dp.server=shared", 2), 0);
    assert_int_equal(run("mode=dp", "devices=cpu:2", "dp.server=dedicated", 3), 0);
    assert_int_equal(run("mode=dp", "devices=cpu:2", "dp.server=sharded", 2), 0);
    assert_int_equal(run("mode=dp", "devices=cpu:2", "dp={server: cpu, staleness: 2}", 3), 0);
    assert_int_equal(run("mode=dp", "devices=cpu:2", "dp.scatter=server", 2), 0);
    assert_int_equal(run("mode=ddp", "devices=cpu:2", "ddp.bucket={first: 4KB, cap: 64KB}", 2), 0);
    assert_int_equal(run("mode=ddp", "devices=cpu:2", "ddp.overlap=false", 2), 0);
    assert_int_equal(run("mode=ddp", "devices=cpu:2", "ddp.bucket=0", 2), 0);
    assert_int_equal(run("mode=ddp", "devices=cpu:2", "ddp.sync={every: 3, state: average}", 2), 0);
    assert_int_equal(run("mode=ddp", "devices=cpu:2", "ddp.sync={every: 3, with: neighbour}", 2), 0);
    assert_int_equal(run("mode=ddp", "devices=cpu:2", "ddp.reduce=adasum", 2), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_mode_allocates_in_a_step)};
    return cmocka_run_group_tests_name("allocations of a step", tests, NULL, NULL);
}
