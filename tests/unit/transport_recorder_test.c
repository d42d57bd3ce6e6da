/* The flight recorder: what it holds after any end, what reading makes of damaged files, and what
 * the post-mortem says. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/algo/algo.h"
#include "transport/flight/recorder_file.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct pool *pool;

static int fresh_pool(void **state) {
    (void)state;
    return pool_create(&pool) != ERR_NONE;
}

static int drop_pool(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static struct recorded_call sum_call(uint32_t sequence, int64_t count) {
    return (struct recorded_call){
        .sequence = sequence, .kind = KIND_ALL_REDUCE, .type = DTYPE_F32, .peer = -1, .count = count};
}

static struct recorded_call message(int lane, int peer, int64_t tag, int64_t count) {
    return (struct recorded_call){.lane = (uint8_t)lane,
                                  .kind = lane == LANE_IN ? KIND_RECV : KIND_SEND,
                                  .type = DTYPE_F32,
                                  .peer = peer,
                                  .count = count,
                                  .tag = tag};
}

static struct recorded_call sent(int to, int64_t tag, int64_t count) {
    return message(LANE_OUT, to, tag, count);
}

static struct recorded_call received(int from, int64_t tag, int64_t count) {
    return message(LANE_IN, from, tag, count);
}

static void record(struct recorder *r, const struct recorded_call *c, int error) {
    recorder_end(r, c->lane, recorder_begin(r, c), error);
}

static enum error open_at(const char *path, int rank, int size, struct recorder **out) {
    const struct recorder_params p = {.path = path, .rank = rank, .size = size, .calls = RECORDER_CALLS, .mail = true};
    return recorder_open(&p, out);
}

/* ---- one file ---- */

static void what_was_recorded_is_read(void **state) {
    (void)state;
    struct recorder *r;
    struct recording got;
    const char *path = scratch_path("flight/deep/rank1.bin");
    assert_ok(open_at(path, 1, 4, &r));
    struct recorded_call a = sum_call(1, 100), b = {.sequence = 1,
                                                    .lane = 1,
                                                    .kind = KIND_BROADCAST,
                                                    .peer = 2,
                                                    .type = DTYPE_I64,
                                                    .count = 7};
    recorder_begin(r, &b);
    record(r, &a, ERR_TIMEOUT);
    recorder_note(r, "backward of a layer whose name is much too long for it", 82);
    recorder_close(r, true);
    assert_ok(recording_read(path, pool, &got));
    assert_int_equal(got.rank, 1);
    assert_int_equal(got.size, 4);
    assert_int_equal(got.pid, getpid());
    assert_true(got.clean);
    assert_string_equal(got.doing, "backward of a layer whose name is much too long");
    assert_int_equal(got.step, 82);
    assert_true(got.noted >= got.clock && got.noted <= clock_ns());
    assert_int_equal(got.ncalls, 2);
    assert_memory_equal(&got.calls[0].call, &b, sizeof b);
    assert_int_equal(got.calls[0].ended, 0);
    assert_string_equal(got.calls[0].name, "broadcast");
    assert_string_equal(got.calls[0].type, "i64");
    assert_memory_equal(&got.calls[1].call, &a, sizeof a);
    assert_true(got.calls[1].ended >= got.calls[1].began);
    assert_int_equal(got.calls[1].error, ERR_TIMEOUT);
    assert_string_equal(got.calls[1].name, "all_reduce");
}

/* By the process itself, while the lane goes on. */
static void own_calls_are_recalled(void **state) {
    (void)state;
    enum { PLACES = 8, MANY = 21 };
    struct recorder *r;
    struct recording_call got[MANY];
    struct recording read;
    struct stat st;
    const struct recorder_params p = {.path = scratch_path("own.bin"), .size = 2, .calls = PLACES, .private = true};
    assert_ok(recorder_open(&p, &r));
    recorder_label(r, "of \x1b[31m the test");
    for (uint32_t i = 1; i <= MANY; i++) {
        struct recorded_call c = sum_call(i, i);
        c.lane = 1;
        uint64_t number = recorder_begin(r, &c);
        if (i < MANY) recorder_end(r, 1, number, i == 3 ? ERR_PEER : ERR_NONE);
    }
    assert_true(recorder_failed(r));
    assert_int_equal(recorder_recall(r, 0, 0, got, MANY), 0);
    assert_int_equal(recorder_recall(r, LANE_IN, 0, got, MANY), 0); /* it has none */
    assert_int_equal(recorder_recall(r, 1, 0, got, MANY), PLACES);
    assert_int_equal(recorder_recall(r, 1, MANY, got, MANY), 0);
    assert_int_equal(recorder_recall(r, 1, MANY - 3, got, 2), 2);
    assert_int_equal(got[0].number, MANY - 3);
    assert_int_equal(got[0].bytes, (MANY - 2) * 4);
    assert_true(got[1].ended >= got[1].began && got[1].began >= got[0].ended);
    assert_int_equal(recorder_recall(r, 1, MANY - 1, got, MANY), 1);
    assert_int_equal(got[0].ended, 0);
    assert_int_equal(stat(p.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, RECORD_HEAD + PLACES * LANES * 64);
    assert_ok(recording_read(p.path, pool, &read));
    assert_int_equal(read.ncalls, PLACES);
    assert_int_equal(read.process, PROCESS_LIVES);
    assert_string_equal(read.label, "of ?[31m the test");
    recorder_leave(r, RECORDED_EXIT);
    assert_ok(recording_read(p.path, pool, &read));
    assert_true(read.closed && read.exited && !read.clean);
    recorder_close(r, true);
}

static void old_calls_make_room(void **state) {
    (void)state;
    enum { MANY = 3 * RECORDER_CALLS };
    struct recorder *r;
    struct recording got;
    struct stat st;
    const char *path = scratch_path("many.bin");
    assert_ok(open_at(path, 0, 1, &r));
    struct recorded_call stuck = {.sequence = 1, .lane = 1, .kind = KIND_REDUCE};
    recorder_begin(r, &stuck);
    for (uint32_t i = 1; i <= MANY; i++) {
        struct recorded_call c = sum_call(i, i);
        record(r, &c, ERR_NONE);
    }
    recorder_close(r, false);
    assert_ok(recording_read(path, pool, &got));
    assert_int_equal(got.ncalls, RECORDER_CALLS + 1);
    assert_int_equal(got.calls[0].call.kind, KIND_REDUCE); /* the other lane's is still there */
    assert_int_equal(got.calls[got.ncalls - 1].call.sequence, MANY);
    for (int i = 2; i < got.ncalls; i++)
        assert_int_equal(got.calls[i].call.sequence, got.calls[i - 1].call.sequence + 1);
    assert_false(got.clean);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, RECORD_FILE);
    assert_ok(open_at(path, 0, 1, &r)); /* replaced, not continued */
    recorder_close(r, false);
    assert_ok(recording_read(path, pool, &got));
    assert_int_equal(got.ncalls, 0);
    assert_string_equal(got.doing, "");
}

/* The receive that is waited for, which stays though any number of others come; what ended lies beside it. */
static void messages_have_lanes_of_their_own(void **state) {
    (void)state;
    enum { PLACES = 8, MANY = 2000 };
    struct recorder *r;
    struct recording got;
    struct recording_call calls[MANY];
    const char *path = scratch_path("messages.bin");
    const struct recorder_params p = {.path = path, .rank = 1, .size = 4, .calls = PLACES, .mail = true};
    struct recorded_call wanted = received(2, -77, 1000), to = sent(3, INT64_MAX, 7), other = received(-1, 5, 0);
    assert_ok(recorder_open(&p, &r));
    int64_t since = clock_ns();
    uint64_t sent_to = recorder_begin(r, &to);
    recorder_wait(r, &wanted, since);
    for (int i = 0; i < MANY; i++) {
        struct recorded_call c = received(0, i, i);
        recorder_add(r, &c, since + i % 7, ERR_NONE);
    }
    assert_int_equal(recorder_recall(r, LANE_IN, 0, calls, MANY), PLACES);
    assert_int_equal(calls[PLACES - 1].number, MANY - 1);
    assert_int_equal(calls[PLACES - 1].call.tag, MANY - 1);
    assert_int_equal(calls[PLACES - 1].bytes, (MANY - 1) * 4);
    assert_true(calls[PLACES - 1].began == since + (MANY - 1) % 7 && calls[PLACES - 1].ended >= since);
    assert_ok(recording_read(path, pool, &got));
    assert_int_equal(got.ncalls, PLACES + 2);
    int open[ALL_LANES] = {0};
    for (int i = 0; i < got.ncalls; i++) {
        const struct recording_call *c = &got.calls[i];
        if (c->ended) continue;
        open[c->call.lane]++;
        assert_memory_equal(&c->call, c->call.lane == LANE_IN ? &wanted : &to, sizeof to);
        assert_true(c->call.lane == LANE_OUT || c->began == since);
        assert_string_equal(c->name, c->call.lane == LANE_IN ? "recv" : "send");
    }
    assert_true(open[LANE_IN] == 1 && open[LANE_OUT] == 1);
    recorder_wait(r, &other, since + 1);
    recorder_end(r, LANE_OUT, sent_to, ERR_NONE);
    assert_ok(recording_read(path, pool, &got));
    for (int i = 0; i < got.ncalls; i++)
        if (!got.calls[i].ended) assert_memory_equal(&got.calls[i].call, &other, sizeof other);
    recorder_wait(r, NULL, 0);
    assert_ok(recording_read(path, pool, &got));
    assert_int_equal(got.ncalls, PLACES + 1);
    assert_false(recorder_failed(r));
    recorder_add(r, &other, since, ERR_TIMEOUT);
    assert_true(recorder_failed(r));
    recorder_close(r, true);
}

static void *other_lane(void *arg) {
    for (uint32_t i = 1; i <= 5000; i++) {
        struct recorded_call c = sum_call(i, 1);
        c.lane = 1;
        record(arg, &c, ERR_NONE);
    }
    return NULL;
}

static void lanes_do_not_disturb_each_other(void **state) {
    (void)state;
    struct recorder *r;
    struct recording got;
    pthread_t id;
    int lanes[2] = {0};
    assert_ok(open_at(scratch_path("lanes.bin"), 0, 1, &r));
    assert_int_equal(pthread_create(&id, NULL, other_lane, r), 0);
    for (uint32_t i = 1; i <= 5000; i++) {
        struct recorded_call c = sum_call(i, 1);
        record(r, &c, ERR_NONE);
        recorder_note(r, "forward", i);
    }
    pthread_join(id, NULL);
    recorder_close(r, true);
    assert_ok(recording_read(scratch_path("lanes.bin"), pool, &got));
    for (int i = 0; i < got.ncalls; i++) lanes[got.calls[i].call.lane]++;
    assert_int_equal(lanes[0], RECORDER_CALLS);
    assert_int_equal(lanes[1], RECORDER_CALLS);
}

static void without_a_recorder_nothing_happens(void **state) {
    (void)state;
    struct recorder *r;
    struct recorded_call c = sum_call(1, 1);
    record(NULL, &c, ERR_NONE);
    recorder_add(NULL, &c, 0, ERR_NONE);
    recorder_wait(NULL, &c, 0);
    recorder_note(NULL, "forward", 1);
    recorder_close(NULL, true);
    assert_fails(ERR_CREATE, open_at("/proc/nowhere/rank0.bin", 0, 1, &r));
    assert_fails(ERR_CREATE, open_at(scratch_folder(), 0, 1, &r));
}

/* ---- a rank that is killed ---- */

/* Records until it is killed, in the middle of something. */
static int run_victim(const char *path) {
    struct recorder *r;
    if (open_at(path, 2, 4, &r)) return 1;
    for (uint32_t i = 1;; i++) {
        struct recorded_call c = sum_call(i, i);
        recorder_note(r, "backward of conv4", i);
        record(r, &c, ERR_NONE);
        if (i == 3000 && write(STDOUT_FILENO, "x", 1) != 1) return 1;
    }
}

static pid_t start_victim(const char *path, int *ready) {
    int ends[2];
    pid_t pid;
    char copy[600];
    snprintf(copy, sizeof copy, "%s", path);
    char *argv[] = {(char[]){"test"}, (char[]){"--victim"}, copy, NULL};
    posix_spawn_file_actions_t files;
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&files, ends[0]);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    *ready = ends[0];
    return pid;
}

static void a_killed_rank_leaves_its_last_calls(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        const char *path = scratch_path("killed.bin");
        struct recording got;
        int ready, status;
        char byte;
        pid_t pid = start_victim(path, &ready);
        assert_int_equal(read(ready, &byte, 1), 1);
        usleep((useconds_t)(i * 137));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        close(ready);
        assert_ok(recording_read(path, pool, &got));
        assert_int_equal(got.pid, pid);
        assert_int_equal(got.process, PROCESS_GONE);
        assert_false(got.clean);
        assert_true(got.ncalls >= RECORDER_CALLS - 1);
        for (int k = 0; k < got.ncalls; k++) {
            assert_int_equal(got.calls[k].call.count, got.calls[k].call.sequence);
            if (k) assert_int_equal(got.calls[k].call.sequence, got.calls[k - 1].call.sequence + 1);
            if (k + 1 < got.ncalls) assert_true(got.calls[k].ended > 0);
        }
        assert_true(!*got.doing || !strcmp(got.doing, "backward of conv4"));
    }
}

/* ---- damage ---- */

static size_t read_all(const char *path, char *bytes) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, RECORD_FILE, f);
    fclose(f);
    return n;
}

static void write_all(const char *path, const char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static char whole[RECORD_FILE], damaged[RECORD_FILE + 64];

static void make_file(const char *path) {
    struct recorder *r;
    assert_ok(open_at(path, 1, 3, &r));
    recorder_note(r, "forward", 5);
    for (uint32_t i = 1; i <= 40; i++) {
        struct recorded_call c = sum_call(i, i);
        c.lane = i & 1;
        uint64_t number = recorder_begin(r, &c);
        if (i < 39) recorder_end(r, c.lane, number, i % 7 ? ERR_NONE : ERR_PEER);
    }
    for (int i = 0; i < 20; i++) {
        struct recorded_call c = i % 2 ? sent(0, i, 8) : received(2, i, 8);
        recorder_add(r, &c, clock_ns(), ERR_NONE);
    }
    recorder_wait(r, &(struct recorded_call){.lane = LANE_IN, .kind = KIND_RECV, .peer = 2, .tag = 5}, clock_ns());
    recorder_close(r, false);
    assert_int_equal(read_all(path, whole), RECORD_FILE);
}

/* Whatever is read can be printed. */
static void read_damaged(const char *path, bool must_fail) {
    struct pool *own;
    struct recording got;
    char *text;
    assert_ok(pool_create(&own));
    enum error err = recording_read(path, own, &got);
    if (err)
        assert_int_equal(err, ERR_DATA);
    else {
        assert_false(must_fail);
        assert_ok(recording_merge(&got, 1, true, own, &text));
        for (const char *c = text; *c; c++) assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
    }
    pool_free(own);
}

static void cut_files_are_refused(void **state) {
    (void)state;
    const char *path = scratch_path("cut.bin");
    make_file(path);
    for (size_t n = RECORD_FILE - 1;; n = n > 5000 ? n - 4099 : n - 1) { /* all of the head's */
        assert_int_equal(truncate(path, (off_t)n), 0);
        read_damaged(path, true);
        if (n == 0) break;
    }
    write_all(path, whole, RECORD_FILE);
    FILE *f = fopen(path, "ab");
    fputc(0, f);
    fclose(f);
    read_damaged(path, true);
    struct recording got;
    assert_fails(ERR_INPUT, recording_read(scratch_path("none.bin"), pool, &got));
    assert_fails(ERR_DATA, recording_read(scratch_folder(), pool, &got));
}

static void flipped_bits_do_no_harm(void **state) {
    (void)state;
    const char *path = scratch_path("flipped.bin");
    uint64_t h = 88172645463325252u;
    make_file(path);
    for (int i = 0; i < 600; i++) {
        memcpy(damaged, whole, RECORD_FILE);
        h ^= h << 13, h ^= h >> 7, h ^= h << 17;
        /* the head, the records that are used, of all lanes */
        int area = i % (1 + ALL_LANES);
        size_t at = area ? RECORD_HEAD + (size_t)(area - 1) * RECORDER_CALLS * 64 : 0;
        at += (h >> 8) % (area ? 20 * 64 : sizeof(struct record_head));
        damaged[at] = (char)(damaged[at] ^ (1 << (h & 7)));
        write_all(path, damaged, RECORD_FILE);
        read_damaged(path, at < offsetof(struct record_head, end));
    }
}

/* A head that fits its check, and records of random bytes that fit theirs. */
static void absurd_numbers_do_no_harm(void **state) {
    (void)state;
    const char *path = scratch_path("absurd.bin");
    uint64_t h = 1234567;
    make_file(path);
    for (int round = 0; round < 40; round++) {
        memcpy(damaged, whole, RECORD_FILE);
        for (size_t i = 0; i < (size_t)ALL_LANES * RECORDER_CALLS; i += 32) {
            struct flight_record e;
            uint64_t words[sizeof e / 8];
            for (size_t k = 0; k < sizeof e / 8; k++) {
                h ^= h << 13, h ^= h >> 7, h ^= h << 17;
                words[k] = h % 5 == 0 ? (uint64_t)INT64_MAX : h % 5 == 1 ? 0 : h;
            }
            memcpy(&e, words, sizeof e);
            e.call.lane = (uint8_t)(i / RECORDER_CALLS);
            e.number = i % RECORDER_CALLS + h % 3 * RECORDER_CALLS;
            e.check = record_check(&e);
            memcpy(damaged + RECORD_HEAD + i * sizeof e, &e, sizeof e);
        }
        struct record_head head;
        memcpy(&head, damaged, sizeof head);
        head.wall = (int64_t)h, head.clock = (int64_t)(h << 1), head.pid = -1;
        head.note.time = INT64_MIN;
        head.wait.began = (int64_t)(h << 2), head.wait.call.count = INT64_MAX, head.wait.call.peer = (int32_t)h;
        head.wait.check = record_check(&head.wait);
        memset(head.host, 0xff, sizeof head.host);
        memset(head.kinds, round & 1 ? '%' : 0, sizeof head.kinds);
        head.check = record_head_check(&head);
        memcpy(damaged, &head, sizeof head);
        write_all(path, damaged, RECORD_FILE);
        read_damaged(path, false);
    }
}

static void a_torn_record_is_left_out(void **state) {
    (void)state;
    const char *path = scratch_path("torn.bin");
    struct recording got;
    make_file(path);
    memset(whole + RECORD_HEAD + 19 * 64, 0, 4); /* its check, as recorder_begin leaves it */
    memset(whole + RECORD_HEAD + 18 * 64 + 20, 0x55, 2);
    write_all(path, whole, RECORD_FILE);
    assert_ok(recording_read(path, pool, &got));
    assert_int_equal(got.ncalls, 38 + 20 + 1);
}

/* ---- the post-mortem ---- */

enum { SECOND = 1000000000 };
/* Ranks on two hosts, whose monotonic clocks differ by 1000 s. */
static struct recording made(int rank, int size, struct recording_call *calls, int ncalls) {
    int64_t zero = rank % 2 * 1000LL * SECOND;
    struct recording r = {.rank = rank,
                          .size = size,
                          .pid = 4709 + rank,
                          .wall = SECOND,
                          .clock = zero,
                          .calls = calls,
                          .ncalls = ncalls};
    snprintf(r.host, sizeof r.host, "host%c", 'A' + rank % 2);
    for (int i = 0; i < ncalls; i++) {
        calls[i].began += zero;
        if (calls[i].ended) calls[i].ended += zero;
    }
    return r;
}

static struct recording_call timed(uint32_t sequence, double began, double ended, int error) {
    struct recording_call c = {.call = sum_call(sequence, 1024),
                               .began = (int64_t)(began * SECOND),
                               .ended = (int64_t)(ended * SECOND),
                               .error = error,
                               .name = "all_reduce",
                               .type = "f32"};
    return c;
}

static const char *merged(const struct recording *ranks, int n) {
    char *text;
    assert_ok(recording_merge(ranks, n, true, pool, &text));
    return text;
}

static void assert_says(const char *text, const char *words) {
    if (!text || !strstr(text, words)) fail_msg("no '%s' in:\n%s", words, text ? text : "");
}

static void the_rank_that_did_not_come_is_named(void **state) {
    (void)state;
    struct recording_call calls[4][2];
    struct recording ranks[4];
    for (int r = 0; r < 4; r++) {
        calls[r][0] = timed(411, 10, 11, ERR_NONE);
        calls[r][1] = timed(412, 12, 72, ERR_TIMEOUT);
        ranks[r] = made(r, 4, calls[r], r == 2 ? 1 : 2);
    }
    snprintf(ranks[2].doing, sizeof ranks[2].doing, "backward of conv4");
    ranks[2].step = 82;
    ranks[2].noted = (int64_t)SECOND * 23 / 2;
    const char *text = merged(ranks, 4);
    assert_says(text, "all finished all_reduce 411; ranks 0, 1, 3 entered all_reduce 412, rank 2 "
                      "did not");
    assert_says(text, "rank 2 (pid 4711 on hostA) was last in all_reduce 411, done; then: backward "
                      "of conv4 of step 82; it never entered all_reduce 412, where ranks 0, 1, 3 "
                      "waited 60.0 s; last sign of life 60.5 s before the end");
    assert_says(text, "rank 3 (pid 4712 on hostB) was in all_reduce 412 for 60.0 s, which failed: "
                      "timed out");
}

/* Ranks that live: their calls last until now, whatever the last sign of life was. */
static void calls_of_living_ranks_last_until_now(void **state) {
    (void)state;
    struct recording_call calls[2][2];
    struct recording ranks[2];
    for (int r = 0; r < 2; r++) {
        calls[r][0] = timed(6, 0.5, 0.75, ERR_NONE);
        calls[r][1] = timed(7, 1, 0, ERR_NONE);
        calls[r][0].bytes = calls[r][1].bytes = 4096;
        ranks[r] = (struct recording){.rank = r, .size = 2, .pid = 4709 + r, .host = "host", .process = PROCESS_LIVES};
        ranks[r].calls = calls[r];
        ranks[r].ncalls = r ? 1 : 2;
        ranks[r].clock = clock_ns() - 31LL * SECOND;
        for (int i = 0; i < 2; i++) calls[r][i].began += ranks[r].clock, calls[r][i].ended += i ? 0 : ranks[r].clock;
    }
    ranks[1].process = PROCESS_STOPPED;
    const char *text = merged(ranks, 2);
    assert_says(text, "running: rank 0\nstopped: rank 1\n");
    assert_says(text, "rank 0 entered all_reduce 7 (4.0 KB), rank 1 did not; the longest wait there: 30.");
    assert_says(text, "rank 0 (pid 4709 on host) is in all_reduce 7 (4.0 KB) for 30.");
    assert_says(text, "before: all_reduce 6 (4.0 KB) 250 ms\n");
    assert_says(text, "rank 1 (pid 4710 on host, stopped) was last in all_reduce 6 (4.0 KB), done; it has not entered "
                      "all_reduce 7 (4.0 KB), where rank 0 waited 30.");
    char *brief;
    assert_ok(recording_merge(ranks, 2, false, pool, &brief));
    assert_says(brief, "rank 1 did not");
    assert_null(strstr(brief, "pid"));
}

/* The rank that waits was killed too, so its call has no end: it lasted until the last sign of
 * anybody. */
static void calls_without_an_end_lasted_to_the_end(void **state) {
    (void)state;
    struct recording_call a = timed(1, 5, 0, 0), b = timed(1, 8, 0, 0);
    struct recording ranks[2] = {made(0, 3, &a, 1), made(1, 3, &b, 1)};
    const char *text = merged(ranks, 2);
    assert_says(text, "rank 0 (pid 4709 on hostA) was in all_reduce 1 for 3.0 s, which never ended");
    assert_says(text, "no collective was finished by all; ranks 0, 1 entered all_reduce 1, and not "
                      "all finished it");
    assert_says(text, "rank 2 of 3 has left no recording");
}

static void ranks_that_called_different_things_are_named(void **state) {
    (void)state;
    struct recording_call a = timed(7, 5, 6, ERR_MISMATCH), b = timed(7, 5, 6, ERR_MISMATCH);
    b.call.count = 99;
    struct recording ranks[2] = {made(0, 2, &a, 1), made(1, 2, &b, 1)};
    assert_says(merged(ranks, 2), "no collective was finished by all");
    struct recording_call c[2] = {timed(1, 1, 2, ERR_NONE), timed(2, 5, 6, ERR_MISMATCH)};
    struct recording_call d[2] = {timed(1, 1, 2, ERR_NONE), timed(2, 5, 6, ERR_MISMATCH)};
    d[1].call.count = 99;
    struct recording two[2] = {made(0, 2, c, 2), made(1, 2, d, 2)};
    assert_says(merged(two, 2), "MISMATCH: rank 1 called all_reduce(f32, 99, operation 0) as "
                                "collective 2, where rank 0 called all_reduce(f32, 1024, operation "
                                "0)");
}

static struct recording_call letter(struct recorded_call call, double began, double ended) {
    struct recording_call c = timed(0, began, ended, ERR_NONE);
    c.call = call;
    c.bytes = call.count * 4;
    snprintf(c.name, sizeof c.name, call.lane == LANE_IN ? "recv" : "send");
    return c;
}

/* Each rank that waits has a line, and who is to send it does what is said there. */
static void who_waits_for_whose_message_is_said(void **state) {
    (void)state;
    struct recording_call a[] = {letter(sent(1, 5, 1000), 0.5, 1), letter(received(1, 7, 1000), 2, 0)};
    struct recording_call b[] = {letter(sent(2, 7, 9), 1, 1.5), letter(received(0, 3, 0), 3, 0)};
    struct recording_call c[] = {timed(1, 0.25, 0.5, ERR_NONE), letter(received(-1, 9, 250), 4, 0),
                                 timed(2, 4.5, 0, 0)};
    struct recording_call d[] = {letter(sent(3, 8, 1), 0.5, 1), letter(received(2, 7, 1), 5, 0)};
    struct recording ranks[] = {made(0, 4, a, 2), made(1, 4, b, 2), made(2, 4, c, 3), made(3, 4, d, 2)};
    for (int i = 0; i < 4; i++) ranks[i].process = PROCESS_GONE;
    const char *text = merged(ranks, 4);
    assert_says(text,
                "rank 0 waited for a message of 3.9 KB with tag 7 from rank 1 for 3.0 s; rank 1 has sent it nothing "
                "with this tag, and waited in recv from rank 0, tag 3\n");
    assert_says(text,
                "rank 1 waited for a message of 0 B with tag 3 from rank 0 for 2.0 s; rank 0 has sent it nothing with "
                "this tag (the last: tag 5, 4.0 s before the end), and waited in recv from rank 1, tag 7 (3.9 KB)\n");
    assert_says(text, "rank 2 waited for a message of 1000 B with tag 9 from any rank for 1.0 s\n");
    assert_says(text, "; rank 2 has sent it nothing with this tag, and waited in recv from any rank, tag 9 (1000 B)\n");
    assert_says(text, "the ranks' own calls: ");
    assert_null(strstr(text, "collective 0"));
    assert_says(text,
                "rank 0 (pid 4709 on hostA) was in recv from rank 1, tag 7 (3.9 KB) for 3.0 s, which never ended");
    assert_says(text, "before: send to rank 1, tag 5 (3.9 KB) 500 ms\n");
}

/* Of living ranks: the others compute, are stopped, in a call, or have left. */
static void what_the_sender_does_is_said(void **state) {
    (void)state;
    struct recording_call wait, last, call;
    struct recording ranks[2];
    char *text;
    for (int i = 0; i < 7; i++) {
        int64_t zero = clock_ns() - 31LL * SECOND;
        wait = letter(received(1, 7, 1000), 1, 0);
        last = letter(sent(0, i == 1 ? 7 : 6, 1), 0.25, i == 6 ? 0 : 0.5);
        call = timed(4, 1, i == 0 ? 0 : 2, ERR_NONE);
        if (i == 2) last.number = 5, last.call.peer = 2;
        if (i == 6) last.call.tag = 7;
        struct recording_call *all[] = {&wait, &last, &call}, both[2];
        for (int k = 0; k < 3; k++) all[k]->began += zero, all[k]->ended += all[k]->ended ? zero : 0;
        both[0] = last, both[1] = call;
        for (int r = 0; r < 2; r++)
            ranks[r] = (struct recording){
                .rank = r, .size = 2, .host = "host", .process = PROCESS_LIVES, .wall = SECOND, .clock = zero};
        ranks[0].calls = &wait, ranks[0].ncalls = 1;
        ranks[1].calls = both, ranks[1].ncalls = 2;
        if (i == 2) ranks[1].process = PROCESS_STOPPED;
        if (i == 3) ranks[1].process = PROCESS_GONE;
        if (i == 4) ranks[1].closed = ranks[1].clean = true;
        if (i == 5) ranks[1].closed = true;
        static const char *const words[] = {
            "; rank 1 has sent it nothing with this tag (the last: tag 6, 30.x s ago), and is in all_reduce 4\n",
            "; rank 1 sent the last with this tag 30.x s ago, and is in no call\n",
            "; rank 1 has sent it nothing with this tag lately, and is stopped\n",
            "; rank 1 has sent it nothing with this tag (the last: tag 6, 30.x s before the end), and was killed\n",
            "(the last: tag 6, 30.x s before the end), and has ended\n",
            "(the last: tag 6, 30.x s before the end), and has failed\n",
            "; rank 1 has begun to send one, and is in send to rank 0, tag 7 (4 B)\n"};
        assert_ok(recording_merge(ranks, 2, false, pool, &text));
        for (char *c = text; *c; c++)
            if (c[0] == '.' && c[1] >= '0' && c[1] <= '9') c[1] = 'x';
        assert_says(text, "rank 0 waits for a message of 3.x KB with tag 7 from rank 1 for 30.x s, since ");
        assert_says(text, words[i]);
        assert_true((strstr(text, "rank 1 is sending a message of 4 B with tag 7 to rank 0 for 30.x s, since ") !=
                     NULL) == (i == 6));
    }
}

static void a_good_end_is_said_too(void **state) {
    (void)state;
    struct recording_call a = timed(9, 1, 2, ERR_NONE), b = timed(9, 1, 2, ERR_NONE);
    struct recording ranks[2] = {made(0, 2, &a, 1), made(1, 2, &b, 1)};
    ranks[0].clean = ranks[1].clean = true;
    const char *text = merged(ranks, 2);
    assert_says(text, "2 ranks, 2 ended well");
    assert_says(text, "all finished all_reduce 9\n");
    assert_null(strstr(text, "never entered"));
    assert_says(merged(ranks, 0), "0 ranks");
    ranks[0].ncalls = 0;
    ranks[0].clean = false;
    assert_says(merged(ranks, 1), "has called nothing");
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--victim")) return run_victim(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_is_read),
        cmocka_unit_test(own_calls_are_recalled),
        cmocka_unit_test(old_calls_make_room),
        cmocka_unit_test(messages_have_lanes_of_their_own),
        cmocka_unit_test(lanes_do_not_disturb_each_other),
        cmocka_unit_test(without_a_recorder_nothing_happens),
        cmocka_unit_test(a_killed_rank_leaves_its_last_calls),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(absurd_numbers_do_no_harm),
        cmocka_unit_test(a_torn_record_is_left_out),
        cmocka_unit_test(the_rank_that_did_not_come_is_named),
        cmocka_unit_test(calls_of_living_ranks_last_until_now),
        cmocka_unit_test(calls_without_an_end_lasted_to_the_end),
        cmocka_unit_test(ranks_that_called_different_things_are_named),
        cmocka_unit_test(who_waits_for_whose_message_is_said),
        cmocka_unit_test(what_the_sender_does_is_said),
        cmocka_unit_test(a_good_end_is_said_too),
    };
    return cmocka_run_group_tests_name("flight recorder", tests, fresh_pool, drop_pool);
}
