/* One rank, on the calling thread, without a group. */
#include "modes/place/place.h"

const struct place place_alone = {.group = {.size = 1}};

enum error alone_launch(const struct job *job, int *exit_code) {
    *exit_code = 0;
    return trainer_run(job, 0, &place_alone);
}
