/* The inside of the emulated CUDA runtime. */
#pragma once
#include "tests/emulated/emulated.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

enum { GPUS_MOST = 16 };

/* ---- errors: device.c ---- */
cudaError_t runtime_failed(cudaError_t e); /* remembers e as the thread's last error */
cudaError_t runtime_enter(const char *function, bool forbidden_in_capture);
void runtime_broken(cudaError_t e); /* from now on every call gives e */
cudaError_t runtime_state(void);
/* What every function of the runtime begins with; the second form is for those that a capture does not allow. */
#define ENTER(function)                                                                                                \
    do {                                                                                                               \
        cudaError_t enter_ = runtime_enter(#function, false);                                                          \
        if (enter_ != cudaSuccess) return enter_;                                                                      \
    } while (0)
#define ENTER_OUTSIDE_CAPTURE(function)                                                                                \
    do {                                                                                                               \
        cudaError_t enter_ = runtime_enter(#function, true);                                                           \
        if (enter_ != cudaSuccess) return enter_;                                                                      \
    } while (0)
#define REFUSE_IF(wrong, error)                                                                                        \
    do {                                                                                                               \
        if (wrong) return runtime_failed(error);                                                                       \
    } while (0)
int gpu_count(void);
int gpu_capability(void);
int gpu_shared_most(void); /* bytes that a block may ask for */
int gpu_current(void);
bool gpu_reaches(int i, int j); /* peer access was enabled, or they are one */

/* ---- streams: stream.c ---- */
enum { CLOCK_STREAMS = 64 };
struct clock { /* race.c: of each stream, the last piece of work that has surely ended */
    uint32_t at[CLOCK_STREAMS];
};
struct work {
    struct work *next;
    struct clock clock;
    void (*run)(void *arg);
    size_t bytes;
    _Alignas(64) unsigned char arg[];
};
struct CUgraph_st {
    struct work *first, **last;
    size_t count;
};
struct CUstream_st {
    struct CUstream_st *next;
    int gpu, priority, slot; /* slot: its place in clocks */
    struct clock clock;
    unsigned flags;
    bool legacy, stop;
    uint64_t submitted, done, random;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, idle;
    struct work *first, **last;
    struct CUgraph_st *capture; /* NULL: none */
    enum cudaStreamCaptureMode capture_mode;
    pthread_t capture_thread;
    bool capture_broken;
};
/* One record of an event: passed once, kept by all who wait for it. */
struct ticket {
    int users;
    bool passed;
    struct timespec when;
    struct clock clock;
};
struct work *work_create(void (*run)(void *arg), const void *arg, size_t bytes);
/* s as the caller named it (NULL is the current GPU's); NULL when there is no such stream. */
struct CUstream_st *stream_of(cudaStream_t s);
/* In order, or into the capture. */
cudaError_t stream_submit(struct CUstream_st *s, void (*run)(void *arg), const void *arg, size_t bytes);
void stream_wait(struct CUstream_st *s);
void streams_wait_gpu(int gpu);
/* Every stream that is capturing in a mode that forbids the calling thread an unsafe call is spoilt by it. */
bool streams_spoil_capture(void);
cudaError_t streams_capture_begin(struct CUstream_st *s, enum cudaStreamCaptureMode mode);
struct CUgraph_st *streams_capture_end(struct CUstream_st *s);
uint64_t jitter_seed(void); /* 0: none */
uint64_t jitter_next(uint64_t *state);

struct ticket *ticket_create(void);
struct ticket *ticket_keep(struct ticket *t);
void ticket_drop(struct ticket *t);
void ticket_pass(struct ticket *t);
bool ticket_passed(struct ticket *t);
void ticket_wait(struct ticket *t);
void ticket_run_pass(void *arg); /* work of a stream: arg points to the ticket, whose use ends */
void ticket_run_wait(void *arg);

/* ---- races: race.c ---- */
int race_slot_take(void);
void race_slot_leave(const struct CUstream_st *s);
void race_work(struct CUstream_st *s, struct work *w);           /* w is asked of s */
void race_record(struct ticket *t, const struct CUstream_st *s); /* t is passed when all of s until now has ended */
void race_follow(struct CUstream_st *s, const struct ticket *t); /* what is asked of s from now on comes after t */
void race_host(const struct clock *waited);                      /* the host has waited for it */
struct clock race_host_clock(void);
struct clock race_clock_of(const struct CUstream_st *s);
void race_begin(const struct CUstream_st *s, const struct work *w);
void race_end(void);
void race_name(const char *name); /* of the work that the calling thread runs */
struct region;
void race_free(const struct region *r, const struct clock *waited); /* waited: by the host, before the call */
void *race_map(size_t bytes);                                       /* NULL: there is no memory */
void race_unmap(void *p, size_t bytes);

/* ---- memory: memory.c ---- */
struct region {
    char *begin;
    size_t bytes;
    char *map;
    size_t mapped;
    enum { REGION_DEVICE, REGION_PINNED, REGION_REGISTERED } kind;
    int gpu;
};
void copy_allocated(void);                           /* copy.c counts it */
bool region_find(const void *p, struct region *out); /* the end of one belongs to it */

/* ---- kernels: kernel.c, launch.c ---- */
size_t kernel_shared_limit(const void *entry);
void kernel_run(const struct emulated_kernel *k, const void *args, uint64_t *random);
void kernel_forget(void);                  /* when a stream's thread ends */
bool kernel_where(char *to, size_t bytes); /* the calling thread's; false: it runs none */
bool kernel_stack_is_full(const void *touched);

/* ---- fault.c ---- */
void fault_watch(void);
void *fault_stack(void); /* for signals of the calling thread; NULL: it has one */
void fault_stack_free(void *stack);
