/* Run directories: where a run is, which run it is, and what it begins from. */
#pragma once
#include "engine/base/memory.h"

struct job;
struct run_settings;
struct run_place {
    char *dir;          /* exists, locked by this process until it ends */
    char *resume;       /* checkpoint to begin from, or NULL */
    const char *run_id; /* node 0's; NULL on other nodes */
    bool fresh;         /* a run begins; else the one of this directory goes on */
    bool elsewhere;     /* 'resume' is a path that the user names */
    struct {
        char *text; /* NULL: there was none */
        size_t n;
    } was[2]; /* config.yaml and resolved.yaml, before run_place_record() */
};
/* Chooses (and makes) the run's directory, which run it is, and what to resume from. given: a run
 * directory named by the user, or NULL. ERR_CREATE: a run would begin where another has left
 * checkpoints; nothing has been written. */
MUST_CHECK enum error run_place_open(const struct run_settings *s, const char *given, struct run_place *out);
/* The newest directory that log.dir may have meant and that holds a checkpoint, and this; out is not
 * touched when there is none. */
void run_place_newest(const struct run_settings *s, struct run_place *out);
/* Writes config.yaml, resolved.yaml, env.json and run.json; where a run begins, removes first what
 * one before it has left here. */
MUST_CHECK enum error run_place_record(struct run_place *p, const struct run_settings *s);
/* Puts back what they were, for settings that the checkpoint refuses must not stay with it. */
void run_place_restore(const struct run_place *p, struct pool *pool);

/* ---- whether a start is a new run or continues one (run_choice.c) ---- */

/* Completes p->run_id and p->fresh. Where a run seems to begin, its directory's own goes on if what is
 * resumed is the newest checkpoint there, or if the launcher says that this is another start of the
 * job that made it: then from that run's last checkpoint (p->resume). ERR_CREATE: one begins, but
 * checkpoints of another are there. */
MUST_CHECK enum error run_choice_make(const struct run_settings *s, struct run_place *p);
/* Removes what an earlier run has left that could be taken for this one's; warns of what stays. */
MUST_CHECK enum error run_choice_clear(const char *dir, struct pool *pool);
/* Writes run.json; where the run is not known here, nothing. */
MUST_CHECK enum error run_choice_write(const struct run_place *p, struct pool *pool);
/* Records in run.json that this start has failed, with the message, for later readers of the directory. */
void run_choice_failed(const struct run_place *p, int code, const char *words, struct pool *pool);

/* Whether the run of the place has ended and the job would make no further step (run_finished.c). If so, says it, with
 * --json by the summary that is there; nothing of it shall be touched. False where hosts or ranks would wait for this one. */
MUST_CHECK enum error run_finished(const struct job *job, const struct run_place *p, bool *finished);
