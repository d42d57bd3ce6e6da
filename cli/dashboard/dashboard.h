/* The live dashboard of 'engine run': one page and its answers over HTTP, served by a thread of
 * the process that keeps the run's files. The run never waits for it, and it reads only what the
 * run leaves in its folder anyway: metrics.jsonl and the flight recorders. 'engine dashboard' serves the same of runs of
 * other processes; of a folder of them each question but the first two says which one is meant: run=ID.
 *
 *   GET /                     the page; it needs nothing else
 *   GET /api/runs?since=N     of a folder: the table of 'engine runs', as JSON; of the N in the header Engine-Next of
 *                             an earlier answer, those rows that have changed since then
 *   GET /api/run              what is run, as JSON
 *   GET /api/ranks            what each rank of this host does, and whether the run has ended
 *   GET /api/metrics?since=N  lines of metrics.jsonl from byte N, whole ones, of bounded size; the
 *                             header Engine-Next is the N to ask for next */
#pragma once
#include "engine/base/json.h"
#include "engine/settings/job.h"
#include "transport/flight/recorder.h"

#define DASHBOARD_STANDARD "127.0.0.1:8080"
struct dashboard;
/* Listens at an address of log.dashboard: PORT (of the loopback), HOST:PORT, [V6]:PORT; port 0 is
 * any that is free. *out is NULL for "off". ERR_DEVICE when the port is taken; names a free one. */
MUST_CHECK enum error dashboard_open(const char *address, struct dashboard **out);
/* "http://127.0.0.1:8080/" */
const char *dashboard_url(const struct dashboard *d);
/* Makes the dashboard show this job's run directory from now on. */
void dashboard_follow(struct dashboard *d, const struct job *job);
/* The run has ended with this code: waits until a page that is looking has seen that, at most 1 s,
 * and ends. NULL is fine. */
void dashboard_close(struct dashboard *d, int code);
/* What a rank does, as one object. ended: its run has. */
void dashboard_rank(struct json *j, const struct recording *r, bool ended);
