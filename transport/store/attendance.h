/* Who has come to a meeting, as the table of a store keeps it. */
#pragma once
#include "transport/store/table.h"

/* Whether these bytes are a member's words (store_words and its texts). */
bool attendance_understands(struct bytes words);
/* A member comes, or asks again: ANSWER_OK, ANSWER_NOT_THERE or ANSWER_REFUSED, with a value as in store_meeting. The
 * words are such that it understands. */
void attendance_take(struct store_table *t, const struct request *q, struct store_answer *a);
