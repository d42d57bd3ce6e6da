/* The server of a store, in the process of one of its members. */
#pragma once
#include "transport/store/table.h"

struct server;
/* Serves a store at "127.0.0.1:29500"; *port is the one that was taken. key: that of the store's secret, or "". */
MUST_CHECK enum error server_open(const char *at, const char *key, const char *run, struct server **out, int *port);
void server_close(struct server *s);
/* As in store.h; NULL: this process serves none. */
bool server_turned_away(struct server *s, char out[128]);
bool server_sees(struct server *s, uint64_t client);
