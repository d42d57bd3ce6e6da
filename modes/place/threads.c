/* Ranks as threads of this process, which read each other's memory. Those that only serve come
 * first. */
#include "modes/place/place.h"

#include "engine/settings/run_config.h"
#include "transport/launch/launch.h"

struct start {
    const struct job *job;
    struct place place;
};

static enum error run_rank(void *user, int rank) {
    const struct start *s = user;
    return trainer_run(s->job, rank, &s->place);
}

enum error threads_launch(const struct job *job, int *exit_code) {
    const struct run_config *c = &job->settings->config;
    int size = run_all_ranks(c);
    struct meeting *meeting;
    *exit_code = 0;
    TRY(meeting_create(size, &meeting));
    struct start s = {job, {{.link = "thread", .size = size, .meeting = meeting}, "star"}};
    enum error err = launch_threads(size, run_rank, &s);
    meeting_free(meeting);
    return err;
}
