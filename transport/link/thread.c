/* Link "thread": ranks are threads of one process and share one mapping of the board. */
#include "transport/link/shared.h"

static enum error open_thread(const struct link_params *p, struct link **out);

const struct link_ops link_thread = {
    .row = &link_rows[COMM_LINK_THREAD],
    .summary = "memory of one process",
    .open = open_thread,
    .await = shared_await,
    .wake = shared_wake,
    SHARED_LINK_OPS,
};

static enum error open_thread(const struct link_params *p, struct link **out) {
    if (p->meeting->fd >= 0) return FAIL(ERR_CONFIG, "link thread, but the ranks are processes\nuse link shm");
    return shared_open(p, &link_thread, out);
}
