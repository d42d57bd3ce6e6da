/* A store in the memory of this process, for members that are threads: it counts what it is asked. */
#pragma once
#include "transport/store/store.h"

struct table_store;
/* Closed by store_close. */
struct store *table_store_open(struct table_store **out);
struct table_count {
    long requests, bytes; /* bytes: of keys and values, asked and answered */
    long lists;           /* of the requests */
};
struct table_count table_store_count(struct table_store *s);
