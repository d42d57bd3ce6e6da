/* What people write about a run or an experiment: a note and tags, in note.json of its folder. No training reads or
 * changes this file. It names its run, so a note is not taken for one of a later run in the same folder. */
#pragma once
#include "engine/base/error.h"
#include "engine/base/memory.h"

enum { REMARK_NOTE = 1000, REMARK_TAG = 40, REMARK_TAGS = 16 }; /* bytes of a note and of a tag; tags of a run */
struct json;
struct remark {
    const char *note; /* one line of UTF-8; "": there is none */
    const char *tags; /* words with one blank between them; "" */
};
/* run_id: of the run that the folder holds now; "": unknown, or an experiment. What would steer a terminal is '?' in a
 * note, and a text that is no tag is left out. A missing file is an empty remark. */
MUST_CHECK enum error remark_read(const char *dir, const char *run_id, struct pool *pool, struct remark *out);
MUST_CHECK enum error remark_save(const char *dir, const char *run_id, const struct remark *r, struct pool *pool);
void remark_put_tags(const struct remark *r, struct json *j); /* as the array "tags" */
bool remark_has_tag(const struct remark *r, const char *tag);
/* Change a remark. ERR_USAGE: the text is no note or no tag, there are too many tags, or the tag to remove is not there. */
MUST_CHECK enum error remark_set_note(struct remark *r, const char *note, struct pool *pool);
MUST_CHECK enum error remark_add_tag(struct remark *r, const char *tag, struct pool *pool);
MUST_CHECK enum error remark_remove_tag(struct remark *r, const char *tag, struct pool *pool);
