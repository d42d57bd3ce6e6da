/* Subgroups over every link, between ranks that are threads and ranks that are processes. */
#include "tests/harness/harness.h"

#include "tests/conformance/splits.h"
#include "transport/link/link.h"

static void run_everywhere(void (*fn)(struct rank *), const int *worlds) {
    int links;
    const struct link_ops *const *link = link_kinds(&links);
    for (int l = 0; l < links; l++)
        for (int i = 0; worlds[i] && !link[l]->row->launched; i++)
            run_ranks((struct ranks){.world = worlds[i], .link = link[l]->row->name, .fn = fn}, NULL);
}

#define EVERYWHERE(name, ...)                                                                                          \
    static void name##_everywhere(void **state) {                                                                      \
        (void)state;                                                                                                   \
        run_everywhere(name, (const int[]){__VA_ARGS__, 0});                                                           \
    }
EVERYWHERE(by_color_and_key, 1, 2, 5, 8)
EVERYWHERE(overlapping, 2, 4, 6)
EVERYWHERE(nested, 1, 3, 8)
EVERYWHERE(of_its_own, 2, 5)
EVERYWHERE(again_and_again, 3)
EVERYWHERE(failures_stay_inside, 4)

/* ---- ranks that are processes ---- */

static int process_rank(int rank, int world) {
    struct meeting *m;
    struct ranks p = {.world = world, .link = "shm"};
    static void (*const all[])(struct rank *) = {by_color_and_key, overlapping, of_its_own};
    struct rank r = {.of = &p, .index = rank};
    struct group_params gp = rank_params(&p, rank);
    if (meeting_join(RANK_FD, world, &m) != ERR_NONE) return 1;
    gp.meeting = m;
    if (group_open(&gp, &r.group) != ERR_NONE) return 2;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) all[i](&r);
    group_close(r.group);
    meeting_free(m);
    if (*r.wrong) fprintf(stderr, "%s\n", r.wrong);
    return *r.wrong ? 3 : 0;
}

static void between_processes(void **state) {
    enum { WORLD = 4 };
    struct meeting *m;
    pid_t pid[WORLD];
    (void)state;
    assert_ok(meeting_create_shared(WORLD, &m));
    for (int i = 0; i < WORLD; i++) pid[i] = spawn_rank(m, i, WORLD, "split");
    for (int i = 0; i < WORLD; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    meeting_free(m);
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "--rank")) return process_rank(atoi(argv[2]), atoi(argv[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_color_and_key_everywhere), cmocka_unit_test(overlapping_everywhere),
        cmocka_unit_test(nested_everywhere),           cmocka_unit_test(of_its_own_everywhere),
        cmocka_unit_test(again_and_again_everywhere),  cmocka_unit_test(failures_stay_inside_everywhere),
        cmocka_unit_test(between_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
