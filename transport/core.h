/* The inside of a group, which group.c, call.c and work.c share. */
#pragma once
#include "transport/algo/algo.h"
#include "transport/flight/recorder.h"
#include "transport/group.h"

/* The state that the calls of one lane share. Only the thread that runs the lane touches it, except the counts. */
struct lane_state {
    uint32_t sequence;          /* of collectives; a send and its receive have none */
    struct collective *running; /* for messages */
    struct lane_lists lists;    /* of LANES */
    char *scratch;
    struct traffic traffic;
    int64_t told; /* when the watch was told last */
    _Atomic int64_t collectives, busy_ns;
};

enum work_state { WORK_FREE, WORK_QUEUED, WORK_RUNNING, WORK_DONE };
struct work {
    struct group *group;
    struct collective call;
    enum error err;
    _Atomic int state;               /* enum work_state */
    struct device_mark *ready, *end; /* call.ready, call.end, where there is an accelerator */
    int64_t began;                   /* when it came to its turn */
    int64_t asked, ended;            /* when it was queued, and when it was done (link_time) */
    int64_t *part;                   /* copies of the caller's part and send_part: size + 1 entries each */
};

struct queue;
struct mail;
struct held;
struct carrier;
struct group {
    int rank, size;
    struct group_params params; /* as opened; link and algorithm are the lists' own names */
    struct link *link;
    const struct algo_ops *algo; /* NULL: the cheapest for each call */
    struct pool *pool;           /* of all lists below that have the group's size */
    struct places places;
    struct bands bands;
    struct terrain terrain;
    char choices[CHOICES_MAX]; /* why, where it is the cheapest */
    uint32_t splits;           /* so far */
    struct meeting *meeting;   /* of a subgroup: where the ranks of this host met, or NULL */
    struct roster *roster;     /* of a subgroup: its own, or NULL */
    char name[16];             /* "rank 2", for log lines of the communication lane */
    struct lane_state lanes[ALL_LANES];
    struct carrier *carrier, *staged; /* of buffers on accelerators (carrier/carrier.h), or NULL;
                                         perhaps one and the same */
    char carried[256];                /* why this carrier */
    struct held *held;                /* what group_alloc gave, if not the link's */
    struct queue *queues[ALL_LANES];  /* of LANE_COMM and LANE_OUT; NULL until they are used */
    struct mail *mail;                /* NULL: there is none */
    bool waits_at_once;               /* for the next work, whoever submits it */
    struct work finished;             /* what LANE_INLINE returns */
    _Atomic(group_watch_fn) watch;    /* NULL: there is no watch */
    void *watcher;
};

/* ---- call.c: one call, from its arguments to its end ---- */

/* ERR_BUG, which fails the group, when the arguments make no sense. */
MUST_CHECK enum error call_check(struct group *g, const struct collective *c);
/* What a call is, for messages: "all_reduce 412 (4.0 MB)". */
void call_words(const struct collective *c, char out[DESCRIBED_MAX]);
struct recorded_call call_recorded(const struct collective *c);
struct call call_of(const struct group *g, const struct collective *c, uint32_t sequence);
/* Runs on the lane's thread. Any failure is the group's. patient: the thread may spin. On return the call may be
 * under_way; it has then to be looked for until it is not (patient: which returns when it is not). */
MUST_CHECK enum error call_run(struct group *g, struct collective *c, bool patient);
struct carrier_patience;
MUST_CHECK enum error call_look(struct group *g, struct collective *c, struct carrier_patience *p, bool patient);
/* Reports to the watch, if there is one, that the activity that began at 'began' (ns) has ended now. waited: the wait
 * for the call, not the call itself. */
void call_tell(struct group *g, const struct collective *c, int64_t began, bool waited);
int64_t call_clock(struct group *g); /* the time now; 0 if there is no watch */
/* link_params' callbacks; user is the group. */
void call_describe(void *user, int lane, char out[DESCRIBED_MAX]);
enum error call_disagree(void *user, int lane, int peer, const struct call *mine, const struct call *theirs);
/* Fails the group with words, as FAIL takes them; a hint that does not fit is left out. */
MUST_CHECK enum error group_fail(struct group *g, enum error err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the words of this thread's last failure, and whose it is. */
MUST_CHECK enum error group_fail_own(struct group *g, enum error err);

/* Every rank's n numbers, brought together at all[rank * n]. */
MUST_CHECK enum error group_gather_all(struct group *g, void *all, int n);

/* ---- work.c: the queues of LANE_COMM and LANE_OUT ---- */

/* c->lane says which. */
MUST_CHECK enum error queue_submit(struct group *g, const struct collective *c, struct work **out);
/* Until all of LANE_COMM has run. */
void queue_drain(struct group *g);
/* Ends the lanes' threads; work still in flight fails the group. */
void queue_stop(struct group *g);

/* ---- mail.c: messages by tags ---- */

MUST_CHECK enum error mail_open(struct group *g);
/* Receives that have not ended are withdrawn. */
void mail_close(struct group *g);
/* A send, on LANE_OUT. */
MUST_CHECK enum error mail_send(struct collective *c);
/* A receive: its work is ended by mail_wait. */
MUST_CHECK enum error mail_ask(struct group *g, const struct collective *c, int *source, struct work **out);
/* work_wait_until; until 0: work_wait. */
MUST_CHECK enum error mail_wait(struct work *w, int64_t until, bool *done);
/* Whether mail_wait would not wait: the message has come, or it will not, since its rank has died or left. */
bool mail_done(struct work *w);
/* What LANE_IN does. */
struct collective mail_shown(struct group *g);
