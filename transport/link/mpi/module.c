/* The MPI module: the few calls of an MPI library that the link "mpi" is made of. */
#include "transport/link/mpi/module.h"
#include "engine/base/version.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(MPI_Comm) <= sizeof(uint64_t), "a space holds a communicator");
_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a flight holds a request");

enum { TAG = 1 };
static atomic_bool forsaken; /* MPI itself is one for the whole process */

union handle { /* of MPI's, as a number */
    uint64_t number;
    MPI_Comm space;
    MPI_Request flight;
};

static MPI_Comm space_of(uint64_t number) {
    return (union handle){.number = number}.space;
}

/* True when the call has succeeded. */
static bool call_succeeded(int err, char words[MPI_WORDS]) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    if (err == MPI_SUCCESS) return true;
    MPI_Error_string(err, text, &n);
    snprintf(words, MPI_WORDS, "%.*s", MPI_WORDS - 1, text);
    return false;
}

/* ---- starting and ending ---- */

static void module_finish(void) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized && !forsaken) MPI_Finalize();
}

/* Libraries of the MPICH family stand in for each other; each series of Open MPI is one of its own. */
static bool library_fits(char words[MPI_WORDS]) {
#ifdef OMPI_MAJOR_VERSION
    char found[MPI_MAX_LIBRARY_VERSION_STRING] = "", wanted[32];
    int n;
    snprintf(wanted, sizeof wanted, "Open MPI v%d.", OMPI_MAJOR_VERSION);
    MPI_Get_library_version(found, &n);
    if (!strncmp(found, wanted, strlen(wanted))) return true;
    found[strcspn(found, ",\n")] = '\0';
    snprintf(words, MPI_WORDS, "built with %sx, but the library that was found is %.100s", wanted, found);
    return false;
#else
    (void)words;
    return true;
#endif
}

static bool module_start(int *rank, int *size, char words[MPI_WORDS]) {
    int running = 0, level = MPI_THREAD_SINGLE;
    if (!library_fits(words)) return false;
    MPI_Initialized(&running);
    int err = running ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (!call_succeeded(err, words)) return false;
    if (!running) atexit(module_finish);
    if (level < MPI_THREAD_MULTIPLE) {
        snprintf(words, MPI_WORDS, "no MPI_THREAD_MULTIPLE, which two lanes need%s",
                 running ? ": start MPI with it" : "");
        return false;
    }
    return call_succeeded(MPI_Comm_rank(MPI_COMM_WORLD, rank), words) &&
           call_succeeded(MPI_Comm_size(MPI_COMM_WORLD, size), words);
}

static void module_forsake(void) {
    forsaken = true;
}

/* ---- spaces ---- */

static bool space_join(const int *ranks, int n, int tag, uint64_t *space, char words[MPI_WORDS]) {
    MPI_Group world, group;
    MPI_Comm c = MPI_COMM_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!call_succeeded(MPI_Comm_group(MPI_COMM_WORLD, &world), words)) return false;
    int err = MPI_Group_incl(world, n, ranks, &group);
    MPI_Group_free(&world);
    if (!call_succeeded(err, words)) return false;
    err = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &c);
    MPI_Group_free(&group);
    if (!call_succeeded(err, words)) return false;
    MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN);
    *space = (union handle){.space = c}.number;
    return true;
}

static void space_part(uint64_t space) {
    MPI_Comm c = space_of(space);
    MPI_Comm_free(&c);
}

/* ---- flights ---- */

/* A request that has begun, if it has. */
static bool flight_begun(int err, MPI_Request r, uint64_t *flight, char words[MPI_WORDS]) {
    if (err == MPI_SUCCESS) *flight = (union handle){.flight = r}.number;
    return call_succeeded(err, words);
}

static bool flight_send(uint64_t space, int peer, const void *data, size_t bytes, uint64_t *flight,
                        char words[MPI_WORDS]) {
    MPI_Request r;
    int err = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, TAG, space_of(space), &r);
    return flight_begun(err, r, flight, words);
}

static bool flight_receive(uint64_t space, int peer, void *data, size_t most, uint64_t *flight, char words[MPI_WORDS]) {
    MPI_Request r;
    int err = MPI_Irecv(data, (int)most, MPI_BYTE, peer, TAG, space_of(space), &r);
    return flight_begun(err, r, flight, words);
}

static bool flight_landed(uint64_t *flight, bool *done, size_t *bytes, char words[MPI_WORDS]) {
    union handle h = {.number = *flight};
    MPI_Status status;
    int flag = 0, n = 0;
    int err = MPI_Test(&h.flight, &flag, &status);
    *flight = h.number;
    *done = flag || err != MPI_SUCCESS;
    if (!call_succeeded(err, words)) return false;
    if (flag) MPI_Get_count(&status, MPI_BYTE, &n);
    *bytes = n > 0 ? (size_t)n : 0;
    return true;
}

static void flight_cancel(uint64_t *flight) {
    MPI_Cancel(&(union handle){.number = *flight}.flight);
}

/* ---- the library's own collectives ---- */

static bool flight_collect(uint64_t space, const struct native_call *c, uint64_t *flight, char words[MPI_WORDS]) {
    const MPI_Datatype types[DTYPES] = {[DTYPE_F32] = MPI_FLOAT,
                                        [DTYPE_F64] = MPI_DOUBLE,
                                        [DTYPE_I32] = MPI_INT32_T,
                                        [DTYPE_I64] = MPI_INT64_T,
                                        [DTYPE_U8] = MPI_UINT8_T};
    const MPI_Op ops[REDOPS] = {
        [REDOP_SUM] = MPI_SUM, [REDOP_AVERAGE] = MPI_SUM, [REDOP_PROD] = MPI_PROD, [REDOP_MIN] = MPI_MIN,
        [REDOP_MAX] = MPI_MAX, [REDOP_AND] = MPI_BAND,    [REDOP_OR] = MPI_BOR,    [REDOP_XOR] = MPI_BXOR};
    MPI_Comm comm = space_of(space);
    MPI_Request r;
    int n = (int)c->count, me = 0, err;
    MPI_Comm_rank(comm, &me);
    bool root = me == c->root;
    if (c->kind == KIND_BROADCAST)
        err = MPI_Ibcast(c->buf, n, types[c->type], c->root, comm, &r);
    else if (c->kind == KIND_ALL_REDUCE)
        err = MPI_Iallreduce(MPI_IN_PLACE, c->buf, n, types[c->type], ops[c->op], comm, &r);
    else
        err = MPI_Ireduce(root ? MPI_IN_PLACE : c->buf, root ? c->buf : NULL, n, types[c->type], ops[c->op], c->root,
                          comm, &r);
    return flight_begun(err, r, flight, words);
}

__attribute__((visibility("default"))) extern const struct mpi_calls engine_mpi;
const struct mpi_calls engine_mpi = {
    .bytes = sizeof(struct mpi_calls),
    .engine = ENGINE_VERSION,
    .start = module_start,
    .forsake = module_forsake,
    .join = space_join,
    .part = space_part,
    .send = flight_send,
    .receive = flight_receive,
    .landed = flight_landed,
    .cancel = flight_cancel,
    .collect = flight_collect,
};
