/* The interface between the dashboard's files. */
#pragma once
#include "cli/dashboard/dashboard.h"
#include "lab/results/runs.h"

#include <stdio.h>

/* ---- dashboard_http.c: what was asked ---- */
enum { HTTP_HEAD = 4096 }; /* bytes of a request, at most */
enum http_page { HTTP_PAGE, HTTP_RUNS, HTTP_RUN, HTTP_RANKS, HTTP_METRICS };
struct http_rules {          /* by which names the server may be called, besides addresses and localhost */
    const char *name, *host; /* NULL: by none */
};
struct http_request {
    enum http_page page;
    char run[LISTED_ID]; /* which of several; "": the only one, or all */
    int64_t since;
};
/* The end of the head, after the empty line; 0: it is not complete. */
size_t http_head_end(const char *in, size_t n);
/* The status: 200, and *out; or what is wrong with it, and a text that says what. */
int http_read(const char *head, size_t n, const struct http_rules *rules, struct http_request *out, const char **wrong);
const char *http_reason(int status);

/* ---- dashboard_state.c: what is answered about a run ---- */
struct board_state {
    const char *run_dir; /* NULL: there is none yet */
    int64_t since_wall;  /* recordings from before belong to another run */
    bool ended, watched; /* watched: from another process, which may go on with it */
    int code;            /* -1: it is not known */
    const char *state, *reason;
};
/* Writes the answer; false: out of memory, or it cannot be read. */
bool board_ranks(const struct board_state *s, FILE *out);
/* Lines from *since on, which moves to what comes next; *last: nothing more was there. */
bool board_metrics(const struct board_state *s, int64_t *since, bool *last, FILE *out);
/* The run's part of the page as JSON, from the settings of *r. devices: -1 where it is not known how many. name: instead of the configuration's; NULL.
 * remark: what people wrote about it; NULL. The text is to be freed; NULL: out of memory. */
char *board_run(const struct run_result *r, int64_t devices, const char *run_dir, const char *name,
                const struct remark *remark);

/* ---- dashboard_serve.c: connections ---- */
struct board_server; /* one thread, a bounded number of connections */
struct board_answer {
    int64_t next;    /* METRICS and RUNS: for Engine-Next; -1: none */
    bool last_words; /* when it has been sent, a page has seen the end */
};
/* Writes the body of an answer that is no page, and gives its status; on the server's thread. */
typedef int (*board_answer_fn)(void *user, const struct http_request *r, struct board_answer *answer, FILE *body);
MUST_CHECK enum error board_server_start(int listener, const struct http_rules *rules, board_answer_fn answer,
                                         void *user, struct board_server **out);
/* Seconds since the last request; very large if there was none. */
double board_server_idle(struct board_server *s);
bool board_server_done(struct board_server *s); /* last words were sent */
void board_server_stop(struct board_server *s);

/* ---- dashboard_listen.c: where ---- */
enum { BOARD_NAME = 256 };
struct board_place {
    char host[BOARD_NAME], own[BOARD_NAME], url[BOARD_NAME + 32];
    int port;
    bool loopback;
};
/* Listens at an address that run_is_address takes, and serves. option: which the hint names with a free port.
 * ERR_DEVICE: it cannot listen there. place is to live as long as the server. */
MUST_CHECK enum error board_server_open(const char *address, const char *option, board_answer_fn answer, void *user,
                                        struct board_place *place, struct board_server **out);
