/* A store in a file, for processes that can all lock it: of one host, or over NFS from version 4 on. No process serves
 * it, and it needs no threads. A file that nobody has open was left behind, and is begun afresh. */
#pragma once
#include "transport/store/request.h"

struct file_store;
MUST_CHECK enum error file_store_open(const char *path, int64_t deadline, struct file_store **out);
/* removes: the file goes. */
void file_store_close(struct file_store *f, bool removes);
/* Does what q says, and waits for what is not there until the deadline. */
MUST_CHECK enum error file_store_ask(struct file_store *f, const struct request *q, int64_t deadline, struct pool *pool,
                                     struct store_answer *a);
