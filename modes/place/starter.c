#include "modes/place/starter.h"

#include "modes/place/facts.h"
#include "modes/place/left.h"

#include "engine/base/clock.h"
#include "engine/base/links.h"
#include "engine/base/log.h"
#include "engine/save/checkpoint.h"
#include "engine/settings/run_config.h"
#include "engine/train/stop.h"
#include "transport/launch/launch.h"
#include "transport/launch/nodes.h"
#include "transport/launch/station.h"
#include "transport/launch/token.h"

#include <stdio.h>

/* Waiting for others may be ended by the first signal, with which a file goes where they were to
 * meet, if it is ours. That they differ from us is how they were started, so not what a mismatch
 * within a run would be: a bug. */
void place_meeting_begins(const char *file) {
    stop_at_once(true, file);
}

enum error place_meeting_ends(enum error err) {
    stop_at_once(false, NULL);
    return err == ERR_MISMATCH ? ERR_CONFIG : err;
}

struct start { /* of all rounds */
    const struct job *job;
    struct nodes *nodes; /* NULL: there is one, and its ranks need no store */
    const char *token;
    struct facts facts;
    char resume[4096];
    struct left left;
    int64_t restarts; /* that were done */
    int64_t asked;    /* since when a rank is let write what it holds, by clock_ns; 0: none is */
};

/* Seconds that another node has to come, once its ranks must have ended. */
enum { MEET_S = 2 };

/* Seconds that the other ranks have to end: those of a GPU end what its libraries hold, and abort NCCL; a trace is written. */
static double grace_of(const struct job *job) {
    const struct run_config *c = &job->settings->config;
    return device_find(c->devices.kind)->units ? 10 : c->log.trace_first ? 3 : 0.5;
}

/* Seconds that rank 0 has to come to the end of its step, after which it saves what the last one has left. */
enum { LEAVE_S = 10 };

/* A disk may hang as well as a rank. */
static bool rank_is_saving(void *user, bool known) {
    struct start *s = user;
    const struct run_settings *settings = s->job->settings;
    const char *folder = pool_printf(settings->pool, "%s/ckpt", s->job->run_dir);
    if (!s->asked) s->asked = clock_ns();
    double waited = clock_seconds(clock_ns() - s->asked);
    if (!folder || waited > settings->config.comm.timeout) return false;
    return checkpoint_is_written(folder) || (known && waited < LEAVE_S && checkpoint_has_saver(folder));
}

static bool others_have_ended(void *user) {
    struct start *s = user;
    return nodes_are_over(s->nodes);
}

static enum error ranks_run(struct start *s, const struct nodes_round *round, struct launch_result *result) {
    const struct job *job = s->job;
    char node[24];
    const char *run_id = job->run_id ? job->run_id : "";
    snprintf(node, sizeof node, "node %lld", (long long)job->settings->config.run.node_rank);
    const char *argv[16] = {"engine", "run"}, *devices, *change;
    TRY(left_devices(&s->left, job->settings->pool, &devices));
    TRY(change_write(&s->left.change, job->settings->pool, &change));
    int argc = 1;
    for (int i = 0; i < 4 && job->command[i]; i++) argv[argc++] = job->command[i];
    if (argc == 1) argc = 2;
    argv[argc++] = job->run_dir;
    if (s->left.change.to) argv[argc++] = "--devices", argv[argc++] = devices;
    if (job->json) argv[argc++] = "--json";
    if (job->quiet) argv[argc++] = "--quiet";
    if (!job->progress) argv[argc++] = "--no-progress";
    const char *variables[] = {RESUME_VARIABLE, s->resume,      STORE_VARIABLE,   round->store,  TOKEN_VARIABLE,
                               s->token,        ROUND_VARIABLE, round->name,      NODE_VARIABLE, node,
                               RUN_VARIABLE,    run_id,         DEVICES_VARIABLE, change,        NULL};
    struct launch_params p = {.size = round->locals,
                              .first = round->first,
                              .world = round->world,
                              .servers = job->settings->config.sharing.servers_here,
                              .first_server = round->first_server,
                              .variables = variables,
                              .argv = argv,
                              .once = true,
                              .log_folder = job->run_dir,
                              .log = stderr,
                              .stop = stop_signal,
                              .grace = grace_of(job),
                              .last = job->settings->config.comm.timeout,
                              .again = STARTER_AGAIN,
                              .over = others_have_ended,
                              .user = s,
                              .lost = pool_alloc(job->settings->pool, (size_t)round->locals * sizeof(int))};
    if (!p.lost) return ERR_MEMORY;
    s->asked = 0;
    if (job->settings->config.sharing.rescues) p.busy = rank_is_saving;
    TRY(meeting_create_shared(p.size, &p.meeting));
    enum error err = launch_processes(&p, result);
    meeting_free(p.meeting);
    return result->first < 0 ? err : ERR_NONE;
}

static bool run_is_elastic(const struct start *s) {
    return s->job->settings->config.run.elastic.min > 0 && s->job->task == JOB_TRAIN;
}

/* Whether a new start may end better; without the device that failed, if that is possible. */
static bool loss_may_pass(const struct start *s, const struct launch_result *r) {
    static const enum error causes[] = {ERR_PEER, ERR_MEMORY, ERR_IO, ERR_CREATE};
    if (r->first < 0 || stop_signal()) return false;
    bool passes = r->signal != 0 || (run_is_elastic(s) && r->exit_code == error_exit_code(ERR_DEVICE));
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        passes = passes || r->exit_code == error_exit_code(causes[i]);
    return passes;
}

/* Node 0 says from which checkpoint: only its ranks read it. A new start takes none but those that
 * this run has saved; where there is none yet it begins as the first one did. */
static void resume_choose(struct start *s, bool again) {
    const struct job *job = s->job;
    char *newest = NULL;
    snprintf(s->resume, sizeof s->resume, "%s", job->resume ? job->resume : "");
    if (again && job->run_id && checkpoint_find(job->run_dir, job->run_id, job->settings->pool, &newest) == ERR_NONE)
        snprintf(s->resume, sizeof s->resume, "%s", newest);
}

/* ---- meeting ---- */

static int round_devices(const struct start *s, const struct nodes_round *round) {
    return round->world - s->job->settings->config.sharing.servers;
}

/* Where there is one node, it has met. */
static enum error nodes_meet_or_none(struct start *s, struct nodes_loss *said, struct nodes_round *round) {
    const struct run_config *c = &s->job->settings->config;
    int count = s->left.count + c->sharing.servers_here, local = run_local_ranks(c);
    *round = (struct nodes_round){.world = count,
                                  .locals = count,
                                  .first = c->sharing.servers_here,
                                  .began = local,
                                  .partial = count < local,
                                  .store = ""};
    if (!s->nodes) return ERR_NONE;
    place_meeting_begins(NULL);
    return place_meeting_ends(nodes_meet(s->nodes, said, round));
}

/* This node begins with all its devices; others may have fewer, or not be there. */
static enum error left_begin_whole(struct start *s, const struct nodes_round *round) {
    TRY(left_all(&s->left, &s->job->settings->config, s->job->settings->pool));
    if (round->partial || round->fewer) left_note(&s->left, round_devices(s, round), round);
    return ERR_NONE;
}

/* All with all their devices, whose number the ranks learn when all have met; or, of a node that comes later, with
 * those that go on. */
static enum error round_meet_all(struct start *s, struct nodes_round *round) {
    TRY(left_all(&s->left, &s->job->settings->config, s->job->settings->pool));
    TRY(nodes_meet_or_none(s, NULL, round));
    return left_begin_whole(s, round);
}

/* The last step of which a checkpoint was due. */
static int64_t checkpoint_due_last(const struct start *s) {
    return checkpoint_newest_due(s->job->run_dir, s->job->run_id, s->job->settings->pool);
}

/* Those that are left, with what they have left; or all, where these are too few and may start again. */
static enum error round_meet_left(struct start *s, const struct launch_result *r, struct nodes_round *round) {
    const struct run_config *c = &s->job->settings->config;
    struct job_change *loss = &s->left.change;
    int from = round_devices(s, round), servers = c->sharing.servers_here;
    bool full = !round->partial;
    TRY(left_lose(&s->left, r, round, s->job->settings->pool));
    struct nodes_loss said = {.locals = s->left.count + servers,
                              .lost = loss->lost,
                              .nlost = loss->nlost,
                              .restarts = s->restarts < c->run.restarts};
    if (!s->nodes) TRY(nodes_suffice(s->left.count, (int)c->run.elastic.min, loss->lost, loss->nlost, servers));
    TRY(nodes_meet_or_none(s, &said, round));
    loss->lost = said.lost, loss->nlost = said.nlost;
    if (full) left_back_off(&s->left, checkpoint_due_last(s));
    if (round->whole) return left_begin_whole(s, round);
    left_note(&s->left, from, round);
    return ERR_NONE;
}

/* At a checkpoint, with all devices of the nodes that are there or have come. */
static enum error round_meet_again(struct start *s, const struct launch_result *r, struct nodes_round *round) {
    int from = round_devices(s, round);
    left_return(&s->left, r, checkpoint_due_last(s));
    struct nodes_loss said = {.locals = s->left.count + s->job->settings->config.sharing.servers_here, .joins = true};
    TRY(nodes_meet_or_none(s, &said, round));
    left_note(&s->left, from, round);
    int began = s->left.change.began, to = s->left.change.to;
    log_info("trying %d of %d devices", to, began > to ? began : to);
    return ERR_NONE;
}

static void restart_tell(struct start *s) {
    log_warn("starting again, for the %lld. time of %lld", (long long)++s->restarts,
             (long long)s->job->settings->config.run.restarts);
}

/* After a loss: those that are left, where run.elastic lets them, or else all, as often as run.restarts says. *goes is
 * false where neither does. */
static enum error run_go_on(struct start *s, const struct launch_result *r, struct nodes_round *round, bool *goes) {
    int64_t restarts = s->job->settings->config.run.restarts;
    int from = round_devices(s, round);
    *goes = loss_may_pass(s, r);
    if (*goes && run_is_elastic(s)) {
        enum error err = round_meet_left(s, r, round);
        if (err == ERR_NONE && round->whole) restart_tell(s);
        if (err == ERR_NONE && !round->whole) log_warn("going on with %d of %d devices", round_devices(s, round), from);
        if (err != ERR_PEER) return err;
        log_error("%s", error_message());
        *goes = !s->nodes; /* else it was decided for all nodes */
    }
    *goes = *goes && s->restarts < restarts;
    if (!*goes) return ERR_NONE;
    restart_tell(s);
    return round_meet_all(s, round);
}

static enum error rounds_run(struct start *s, int *exit_code) {
    struct nodes_round round;
    struct launch_result result;
    bool goes = true;
    TRY(round_meet_all(s, &round));
    for (bool again = false; goes; again = true) {
        resume_choose(s, again);
        TRY(ranks_run(s, &round, &result));
        *exit_code = result.exit_code;
        if (result.first < 0 && result.stuck >= 0) log_warn("rank %d did not end and was killed", result.stuck);
        if (result.again) {
            TRY(round_meet_again(s, &result, &round));
            continue;
        }
        if (result.first < 0) return ERR_NONE;
        nodes_tell_failure(s->nodes);
        left_tell(s->job, &result);
        *exit_code = result.signal ? error_exit_code(ERR_PEER) : result.exit_code;
        TRY(run_go_on(s, &result, &round, &goes));
    }
    return ERR_NONE;
}

/* ---- where they meet ---- */

/* Ranks of one host need a store only for a link that other hosts could use as well. */
static enum error nodes_open_if_needed(struct start *s, struct nodes_params *p) {
    const struct link_row *link = &link_rows[s->job->settings->config.comm.link];
    if (p->nodes_max == 1 && link->joins != JOINS_HOSTS) return ERR_NONE;
    if (p->nodes_max > 1) TRY(facts_find(s->job, &s->facts));
    p->nfacts = s->facts.count;
    return nodes_open(p, &s->nodes);
}

/* This node's ranks, with the other nodes if there are any, and again after a loss as often as
 * run.restarts says, or with what is left. The exit code is of ranks that have said themselves what was wrong. */
enum error starter_run(const struct job *job, int *exit_code) {
    const struct place_config *c = &job->settings->config.run;
    struct pool *pool = job->settings->pool;
    struct start s = {.job = job};
    struct nodes_params np = {.index = (int)c->node_rank,
                              .nodes_min = (int)c->elastic.nodes,
                              .nodes_max = (int)c->nodes,
                              .locals = run_local_ranks(&job->settings->config),
                              .servers = job->settings->config.sharing.servers_here,
                              .all_servers = job->settings->config.sharing.servers,
                              .facts = s.facts.of,
                              .again = c->restarts > 0 || run_is_elastic(&s),
                              .timeout = c->join_timeout,
                              .needs_first = true,
                              .least = run_is_elastic(&s) ? (int)c->elastic.min : 0,
                              .patience = job->settings->config.comm.heartbeat + grace_of(job) + MEET_S};
    if (c->nodes > 1) TRY(nodes_master(c->master, c->port, pool, &np.master));
    TRY(nodes_token(c->token, np.nodes_max, pool, &s.token));
    np.token = s.token;
    enum error err = nodes_open_if_needed(&s, &np);
    if (!err) err = rounds_run(&s, exit_code);
    nodes_close(s.nodes);
    return err;
}
