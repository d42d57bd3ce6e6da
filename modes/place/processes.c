/* Ranks as processes. 'engine run' on one host starts its ranks around a board that they inherit.
 * On several hosts each starts its own; the nodes meet first, in a store that node 0 keeps, and
 * then the ranks meet there. Ranks that another launcher has started meet in a store that rank 0
 * keeps. */
#include "modes/place/facts.h"
#include "modes/place/left.h"
#include "modes/place/place.h"
#include "modes/place/starter.h"

#include "engine/base/links.h"
#include "engine/base/log.h"
#include "engine/settings/run_config.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"
#include "transport/launch/nodes.h"
#include "transport/launch/station.h"
#include "transport/launch/token.h"

#include <string.h>

/* ---- a rank ---- */

/* Whether nodes that were lost wait to be taken in. */
static bool nodes_have_come(void *station) {
    return nodes_wait(station_store(station));
}

/* The life of a rank, from the place where it meets the others on. */
static enum error rank_live(struct job job, const struct station_params *p, const char *resume) {
    struct station *s;
    bool file = p->serve && !strncmp(p->master, "file://", 7);
    place_meeting_begins(file ? p->master + 7 : NULL);
    enum error err = place_meeting_ends(station_open(p, &s));
    TRY(err);
    job.resume = resume;
    job.comes = nodes_have_come;
    job.user = s;
    const struct place place = {.group = *station_group(s), .algorithm = "auto"};
    err = trainer_run(&job, p->rank, &place);
    station_close(s);
    return err;
}

static const char *interface_of(const struct run_config *c) {
    return strcmp(c->comm.interface, "auto") ? c->comm.interface : NULL;
}

/* Meets the other ranks and trains, in a process that starter_run has started. */
static enum error rank_run_started(const struct job *job, int *exit_code) {
    const struct run_config *c = &job->settings->config;
    const struct rank_process *me = &job->process;
    struct station_params p = {.rank = me->rank,
                               .size = run_all_ranks(c),
                               .locals = me->locals,
                               .meeting_fd = me->meeting_fd,
                               .link = c->comm.link ? link_rows[c->comm.link].name : "shm",
                               .interface = interface_of(c),
                               .timeout = c->run.join_timeout};
    struct job mine = *job;
    struct job_change change;
    bool renews = false;
    TRY(station_told(job->settings->pool, &p));
    mine.run_id = station_variable(RUN_VARIABLE);
    mine.renews = &renews;
    TRY(change_read(station_variable(DEVICES_VARIABLE), job->settings->pool, &change));
    if (change.to) mine.change = &change;
    TRY(rank_live(mine, &p, station_variable(RESUME_VARIABLE)));
    if (renews) *exit_code = STARTER_AGAIN;
    return ERR_NONE;
}

/* Meets the other ranks and trains, in a process that another launcher has started as a rank. */
static enum error rank_run_joined(const struct job *job) {
    const struct run_config *c = &job->settings->config;
    const struct run_launched *l = &c->launched;
    const char *master, *token;
    struct facts facts;
    TRY(facts_find(job, &facts));
    const struct launcher_ranks ranks = {l->by, l->job, l->size, l->locals};
    TRY(launcher_place(&ranks, l->master, job->settings->pool, &master));
    TRY(token_find(c->run.token, job->settings->pool, &token));
    token_forget(c->run.token);
    log_info("rank %d of %d, started by %s%s%s%s: meeting at %s", l->rank, l->size, l->by,
             l->variables && *l->variables ? " (" : "", l->variables ? l->variables : "",
             l->variables && *l->variables ? ")" : "", master);
    struct station_params p = {.rank = l->rank,
                               .size = l->size,
                               .meeting_fd = -1,
                               .link = link_rows[c->comm.link].name,
                               .master = master,
                               .serve = l->rank == 0,
                               .token = token,
                               .run = l->job,
                               .round = "ranks",
                               .interface = interface_of(c),
                               .facts = facts.of,
                               .nfacts = facts.count,
                               .timeout = c->run.join_timeout};
    struct job mine = *job;
    mine.processes = l->size;
    return rank_live(mine, &p, job->resume);
}

/* A process of its own for each rank: this is one, or starts them. */
enum error processes_launch(const struct job *job, int *exit_code) {
    *exit_code = 0;
    if (job->process.rank >= 0) return rank_run_started(job, exit_code);
    if (job->settings->config.launched.by) return rank_run_joined(job);
    return starter_run(job, exit_code);
}
