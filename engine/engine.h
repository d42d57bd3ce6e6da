/* The engine as a library: train from a configuration, or let the ranks of your own program
 * exchange and add memory.
 *
 *     #include <engine/engine.h>
 *     struct engine_result r;
 *     const char *sets[] = {"mode=dp", "devices=cpu:2", "train=1ep"};
 *     int code = engine_run(NULL, sets, 3, &r);            // or a path to a YAML file
 *     if (code) fprintf(stderr, "%s\n", engine_message()); else printf("%s\n", r.weights_sha256);
 *
 * Compile with: cc program.c $(pkg-config --cflags --libs engine). Modes single and dp run inside
 * the calling process. ddp starts processes of the engine program, which a library cannot be:
 * engine_run refuses it (69); use 'engine run' for it. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define ENGINE_API __attribute__((visibility("default")))
#else
#define ENGINE_API
#endif

struct engine_result {
    long long steps;
    /* NaN: not measured, as the accuracy where there are no classes. */
    double train_loss, val_loss, val_accuracy, samples_per_s, seconds;
    char weights_sha256[65], losses_sha256[65];
    char run_dir[4096];
};

ENGINE_API const char *engine_version(void);
/* Trains. config: path of a YAML file, NULL for the defaults; sets: "key=value" changes on top of
 * it. Gives 0, or the exit code that the program would end with; *out is filled on 0. Prints
 * nothing but what is wrong with a configuration, on standard error. One run at a time in a
 * process. */
ENGINE_API int engine_run(const char *config, const char *const *sets, int nsets, struct engine_result *out);
/* Checks a configuration, its data and its model: 0, or the exit code. */
ENGINE_API int engine_validate(const char *config, const char *const *sets, int nsets);
/* The calling thread's last failure, and what to do about it ("" when nothing is known). */
ENGINE_API const char *engine_message(void);
ENGINE_API const char *engine_hint(void);

/* ---- groups -----------------------------------------------------------------------------------
 * Ranks that move and add memory together. Start N processes of your program by 'engine launch -n N
 * PROGRAM' (on several hosts with --nnodes), torchrun, mpirun or srun; each opens the group:
 *
 *     struct engine_group *g;
 *     if (engine_group_open(NULL, &g)) ...
 *     engine_all_reduce(g, x, x, n, ENGINE_F32, ENGINE_SUM);
 *     engine_group_close(g);
 *
 * Every rank makes the same calls in the same order, from one thread; messages are not part of that order. Ranks that
 * disagree, die or do not come are named in engine_message() on all others. All functions give 0 or an exit code.
 * After one has failed, the group stays failed. send and recv may be the same memory. */
enum engine_type { ENGINE_F32, ENGINE_F64, ENGINE_F16, ENGINE_BF16, ENGINE_I32, ENGINE_I64, ENGINE_U8 };
enum engine_op {
    ENGINE_SUM,
    ENGINE_PROD,
    ENGINE_MIN, /* where a term is NaN, the result of these two is NaN */
    ENGINE_MAX,
    ENGINE_AVG,
    ENGINE_AND, /* bitwise, for integers, like the next two */
    ENGINE_OR,
    ENGINE_XOR
};
struct engine_group;
struct engine_work;

/* How the ranks find each other. If all is zero (or init is NULL), the environment that the launcher
 * has set says how, once in a process; without a launcher it is a group of one. */
struct engine_init {
    const char *init; /* "tcp://HOST:PORT" (of rank 0) or "file:///PATH", with rank and size */
    int rank, size;
    const char *token;         /* as run.token, or the secret itself; NULL: auto */
    const char *link;          /* auto, shm, tcp, hosts */
    const char *algorithm;     /* auto, or a name */
    const char *order;         /* tree, or ring */
    const char *interface;     /* to listen on for other hosts */
    const char *secure;        /* as comm.secure: auto, off, sealed or encrypted, the same on all ranks; NULL: auto */
    double timeout;            /* seconds without progress; 0: 60 */
    double bandwidth, latency; /* of this rank's emulated port: bits per second, each way, and seconds; 0: none */
};
/* On failure *out is NULL. */
ENGINE_API int engine_group_open(const struct engine_init *init, struct engine_group **out);
ENGINE_API void engine_group_close(struct engine_group *g);
ENGINE_API int engine_group_rank(const struct engine_group *g);
ENGINE_API int engine_group_size(const struct engine_group *g);
/* "direct over shm: each rank sums its own slice ...": how this many bytes are added, and why. */
ENGINE_API const char *engine_group_choice(struct engine_group *g, unsigned long long bytes);
/* A group of the ranks that give the same color, ordered by key, then by rank. If color < 0, *out is
 * NULL. Close it before g. */
ENGINE_API int engine_group_split(struct engine_group *g, int color, int key, struct engine_group **out);
/* Memory that the other ranks reach without a copy; all ranks ask for the same size. It is freed with
 * the group. Any other memory may be used as well. */
ENGINE_API int engine_group_alloc(struct engine_group *g, unsigned long long bytes, void **out);

ENGINE_API int engine_all_reduce(struct engine_group *g, const void *send, void *recv, long long count,
                                 enum engine_type type, enum engine_op op);
ENGINE_API int engine_reduce(struct engine_group *g, const void *send, void *recv, long long count,
                             enum engine_type type, enum engine_op op, int root);
ENGINE_API int engine_broadcast(struct engine_group *g, void *buf, long long count, enum engine_type type, int root);
/* count is that of one rank's part: recv of all_gather, all_to_all (and of gather at root) holds
 * size * count, and so does send of reduce_scatter, all_to_all (and of scatter at root). recv of
 * reduce_scatter may be this rank's part of send, and does not overlap it otherwise. */
ENGINE_API int engine_all_gather(struct engine_group *g, const void *send, void *recv, long long count,
                                 enum engine_type type);
ENGINE_API int engine_gather(struct engine_group *g, const void *send, void *recv, long long count,
                             enum engine_type type, int root);
ENGINE_API int engine_scatter(struct engine_group *g, const void *send, void *recv, long long count,
                              enum engine_type type, int root);
ENGINE_API int engine_reduce_scatter(struct engine_group *g, const void *send, void *recv, long long count,
                                     enum engine_type type, enum engine_op op);
/* send and recv do not overlap. */
ENGINE_API int engine_all_to_all(struct engine_group *g, const void *send, void *recv, long long count,
                                 enum engine_type type);
/* Messages from one rank to another, which are not part of the order of calls. A send does not wait for its receive: a
 * message that comes before its receive is kept in the receiver's memory. A receive names the rank (or ENGINE_ANY) and
 * the tag; messages with one tag from one rank are received in the order in which they were sent. Both ends give the
 * same type and count. *source becomes the rank that has sent it; source may be NULL. */
enum { ENGINE_ANY = -1 };
ENGINE_API int engine_send(struct engine_group *g, const void *buf, long long count, enum engine_type type, int peer,
                           long long tag);
ENGINE_API int engine_recv(struct engine_group *g, void *buf, long long count, enum engine_type type, int peer,
                           long long tag, int *source);
ENGINE_API int engine_barrier(struct engine_group *g);

/* These calls run beside the caller's own work, up to 256 at a time, in the order of their starts; any thread may wait
 * for them, in any order. Every work needs engine_work_wait once. Until that has returned, the caller neither reads nor
 * writes the work's memory (recv or buf), except that it may read buf of a send. 'send' is read at the start, except by
 * reduce, reduce_scatter, all_to_all, gather and scatter. On failure *out is NULL. A call that is started on one rank
 * is started on all. */
ENGINE_API int engine_all_reduce_start(struct engine_group *g, const void *send, void *recv, long long count,
                                       enum engine_type type, enum engine_op op, struct engine_work **out);
ENGINE_API int engine_reduce_start(struct engine_group *g, const void *send, void *recv, long long count,
                                   enum engine_type type, enum engine_op op, int root, struct engine_work **out);
ENGINE_API int engine_broadcast_start(struct engine_group *g, void *buf, long long count, enum engine_type type,
                                      int root, struct engine_work **out);
ENGINE_API int engine_all_gather_start(struct engine_group *g, const void *send, void *recv, long long count,
                                       enum engine_type type, struct engine_work **out);
ENGINE_API int engine_all_to_all_start(struct engine_group *g, const void *send, void *recv, long long count,
                                       enum engine_type type, struct engine_work **out);
/* Parts of any length: elements [to[r], to[r + 1]) of send go to rank r, and what comes from rank r goes to elements
 * [from[r], from[r + 1]) of recv. 'to' and 'from' have size + 1 entries and are read at the start. */
ENGINE_API int engine_all_to_all_parts_start(struct engine_group *g, const void *send, const long long *to, void *recv,
                                             const long long *from, enum engine_type type, struct engine_work **out);
ENGINE_API int engine_gather_start(struct engine_group *g, const void *send, void *recv, long long count,
                                   enum engine_type type, int root, struct engine_work **out);
ENGINE_API int engine_scatter_start(struct engine_group *g, const void *send, void *recv, long long count,
                                    enum engine_type type, int root, struct engine_work **out);
ENGINE_API int engine_reduce_scatter_start(struct engine_group *g, const void *send, void *recv, long long count,
                                           enum engine_type type, enum engine_op op, struct engine_work **out);
ENGINE_API int engine_send_start(struct engine_group *g, const void *buf, long long count, enum engine_type type,
                                 int peer, long long tag, struct engine_work **out);
/* Any number of these at a time. *source is written before engine_work_wait returns. */
ENGINE_API int engine_recv_start(struct engine_group *g, void *buf, long long count, enum engine_type type, int peer,
                                 long long tag, int *source, struct engine_work **out);
ENGINE_API int engine_barrier_start(struct engine_group *g, struct engine_work **out);
/* This thread waits for the next call that it starts (but a receive) as soon as it has started it, which takes less time:
 * no other thread is woken for that call. */
ENGINE_API void engine_group_wait_at_once(struct engine_group *g);
ENGINE_API int engine_work_done(struct engine_work *w); /* 1: engine_work_wait will not wait */
ENGINE_API int engine_work_wait(struct engine_work *w);

/* Fails the group on every rank; engine_message() of the others then gives the reason. Any thread may call it. */
ENGINE_API void engine_group_abort(struct engine_group *g, const char *reason);
/* What this rank has exchanged since the group was opened. */
struct engine_stats {
    long long sent, received; /* bytes to and from other ranks */
    long long calls;
    double busy; /* seconds that started calls have run */
};
ENGINE_API void engine_group_stats(const struct engine_group *g, struct engine_stats *out);

/* ---- what 'engine inspect' shows of a group while it runs and after it was killed: its last calls. They are recorded
 * in /dev/shm/engine-flight-UID, or in the folder that ENGINE_FLIGHT names (empty: nothing is recorded) ---- */
/* A name that no other group has, the same on all ranks: "18a9c5d2f0417e33", or "18a9c5d2f0417e33.1-0" for a group that
 * was split from that one. "" if nothing is recorded, as for a group of one. */
ENGINE_API const char *engine_group_name(const struct engine_group *g);
/* What the group is for, shown beside its name; at most 47 bytes are kept. */
ENGINE_API void engine_group_label(struct engine_group *g, const char *label);
struct engine_call {
    char name[24];          /* "all_reduce" */
    long long number;       /* counts this rank's calls of the list that was asked for, from 0 */
    long long sequence;     /* counts collectives likewise, the same on all ranks; 0 for a message */
    long long bytes, tag;   /* bytes: of its payload; tag: of a message */
    long long began, ended; /* ns of CLOCK_MONOTONIC; ended 0: it runs */
    int root, code;         /* root: or the peer of a message; -1: none, or any; code: its exit code */
};
/* The lists: calls that waited, calls that were started, and messages. A send begins when it starts to leave; a receive
 * begins when it is asked for, and is listed once it has ended. */
enum { ENGINE_OWN, ENGINE_STARTED, ENGINE_SENT, ENGINE_RECEIVED };
/* At most n of the list's last 512, from that number on. Gives how many it wrote. Any thread may call it. */
ENGINE_API int engine_group_calls(const struct engine_group *g, int which, long long number, struct engine_call *out,
                                  int n);
/* Called by all ranks. offset: ns to add to this rank's CLOCK_MONOTONIC to get rank 0's, off by at most half of
 * round_trip, which is 0 if both are on one host. */
ENGINE_API int engine_group_clock(struct engine_group *g, long long *offset, long long *round_trip);

#ifdef __cplusplus
}
#endif
