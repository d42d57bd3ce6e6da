/* The parts of the link over TCP that other links use. Every l is from tcp_open. */
#pragma once
#include "transport/link/link.h"

/* Like link_ops.open, for a link with the given ops: all ranks hear of each other from here on, and messages pass
 * between those that exchange some. Its callbacks are not called before tcp_opened. */
MUST_CHECK enum error tcp_open(const struct link_params *p, const struct link_ops *ops, struct link **out);
void tcp_opened(struct link *l);
void tcp_close(struct link *l);

/* The two halves of exchange: begin starts both directions and waits for neither; end must follow. */
MUST_CHECK enum error tcp_begin(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                const struct incoming *in);
MUST_CHECK enum error tcp_end(struct link *l, int lane);
/* The half of meet that shows a call to others. */
void tcp_publish(struct link *l, int lane, const struct call *c);
/* Ranks who[0..n), of which this one is who[at]. who NULL: all ranks. */
struct circle {
    const int *who;
    int n, at;
};
/* All ranks of the circle have called as often as this one. */
MUST_CHECK enum error tcp_gather(struct link *l, int lane, struct circle c);
/* Measures alpha and beta among these ranks. */
MUST_CHECK enum error tcp_measure(struct link *l, struct circle c);

enum error tcp_fail(struct link *l, enum error err, const char *reason);
/* Fails the group because the lane's call takes too long: with words for a rank that has not come
 * to it, else with those given. */
enum error tcp_overdue(struct link *l, int lane, const char *otherwise);
enum error tcp_failure(struct link *l);
void tcp_note(struct link *l, const char *doing, int64_t step);
enum error tcp_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                        const struct incoming *in);
enum error tcp_arrival(struct link *l, int *peer);
void tcp_poke(struct link *l);
bool tcp_left(struct link *l, int rank);
