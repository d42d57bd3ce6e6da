#include "transport/carrier/nccl_about.h"

#include <stdio.h>

#ifdef ENGINE_HAVE_NCCL
#include "engine/base/clock.h"
#include "transport/carrier/nccl_library.h"

#include <time.h>

void nccl_software(struct device_software *out) {
    *out = (struct device_software){.name = "NCCL"};
    if (nccl_load() != ERR_NONE)
        snprintf(out->missing, sizeof out->missing, "%s\n%s", error_message(), error_hint());
    else
        nccl_version(out->version, out->where, sizeof out->where);
}

/* One thing that NCCL was asked to do. */
struct asked {
    const char *what;
    ncclComm_t comm;
    int64_t since;
};

static enum error asked_failed(const struct asked *a, ncclResult_t rc) {
    return FAIL(ERR_DEVICE, "%s: %s\nset NCCL_DEBUG=INFO to see why", a->what, nccl.GetErrorString(rc));
}

/* Once more, a moment later; an error of the communicator's is found here. */
static enum error asked_linger(const struct asked *a, ncclResult_t *state) {
    enum { SECONDS = 30 };
    const struct timespec nap = {.tv_nsec = 1000000};
    if (clock_seconds(clock_ns() - a->since) > SECONDS)
        return FAIL(ERR_TIMEOUT, "%s has not ended within %d s\nset NCCL_DEBUG=INFO to see what it waits for", a->what,
                    SECONDS);
    nanosleep(&nap, NULL);
    ncclResult_t rc = nccl.CommGetAsyncError(a->comm, state);
    if (rc == ncclSuccess && (*state == ncclSuccess || *state == ncclInProgress)) return ERR_NONE;
    return asked_failed(a, rc ? rc : *state);
}

/* Until NCCL has taken what it answered with rc. */
static enum error asked_settle(ncclComm_t comm, ncclResult_t rc, const char *what) {
    struct asked a = {what, comm, clock_ns()};
    while (rc == ncclInProgress) TRY(asked_linger(&a, &rc));
    return rc == ncclSuccess ? ERR_NONE : asked_failed(&a, rc);
}

/* What hangs on the GPU would keep whoever waits for it: it is asked instead. */
static enum error asked_await(struct device *dev, const struct device_mark *end, ncclComm_t comm) {
    struct asked a = {"ncclAllReduce", comm, clock_ns()};
    ncclResult_t state;
    while (!device_runtime(dev)->passed(end)) TRY(asked_linger(&a, &state));
    return device_wait(dev);
}

static enum error nccl_add(struct device *dev, ncclComm_t comm, void *there, size_t n) {
    const struct device_runtime *runtime = device_runtime(dev);
    cudaStream_t stream = runtime->stream(dev, LANE_COMPUTE);
    ncclResult_t rc = nccl.AllReduce(there, there, n, ncclFloat32, ncclSum, comm, stream);
    struct device_mark *end;
    TRY(asked_settle(comm, rc, "ncclAllReduce"));
    TRY(runtime->mark_create(dev, &end));
    enum error err = runtime->mark(dev, LANE_COMPUTE, end);
    if (err == ERR_NONE) err = asked_await(dev, end, comm);
    runtime->mark_free(end);
    return err;
}

static enum error try_comm(struct device *dev, ncclComm_t *comm, void *there, size_t n) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    device_runtime(dev)->stream(dev, LANE_COMPUTE); /* makes it the calling thread's GPU */
    TRY(asked_settle(NULL, nccl.GetUniqueId(&id), "ncclGetUniqueId"));
    ncclResult_t rc = nccl.CommInitRankConfig(comm, 1, id, 0, &config);
    TRY(asked_settle(*comm, rc, "ncclCommInitRank"));
    return nccl_add(dev, *comm, there, n);
}

enum error nccl_probe(struct device *dev) {
    enum { FLOATS = 1000 };
    ncclComm_t comm = NULL;
    void *there;
    TRY(nccl_load());
    TRY(device_alloc(dev, FLOATS * sizeof(float), &there));
    enum error err = try_comm(dev, &comm, there, FLOATS);
    if (comm && !nccl_abort(comm) && !err) /* nothing else ends what is under way */
        err = FAIL(ERR_TIMEOUT, "ncclCommAbort does not end");
    device_free(dev, there);
    return err;
}
#else
void nccl_software(struct device_software *out) {
    *out = (struct device_software){.name = "NCCL", .missing = "this program was built without NCCL"};
}

enum error nccl_probe(struct device *dev) {
    (void)dev;
    return FAIL(ERR_DEVICE, "this program was built without NCCL");
}
#endif
