/* Link "shm": ranks are processes of one host; each maps the board, a memfd, at an address of its own. */
#include "transport/link/shared.h"

static enum error open_shm(const struct link_params *p, struct link **out);

const struct link_ops link_shm = {
    .row = &link_rows[COMM_LINK_SHM],
    .summary = "shared memory of one host",
    .open = open_shm,
    SHARED_LINK_OPS,
};

static enum error open_shm(const struct link_params *p, struct link **out) {
    if (p->meeting->fd < 0) return FAIL(ERR_CONFIG, "link shm, but the ranks are threads\nuse link thread");
    return shared_open(p, &link_shm, out);
}
