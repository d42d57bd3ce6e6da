/* How 'engine predict' tells its answers: as lines for people, JSON or CSV. */
#pragma once
#include "cli/line/cli.h"
#include "cli/use/trained.h"

enum predict_form { PREDICT_TEXT, PREDICT_JSON, PREDICT_CSV };
struct teller {
    enum predict_form form;
    int64_t top;                /* how many classes of each sample */
    bool logits, truths;        /* the outputs before softmax; a column for what is known to be true */
    const struct dataset *data; /* whose classes they are */
    bool classes;               /* outputs are of classes; else numbers */
    bool likely;                /* y are probabilities, as the loss says */
    int64_t width;              /* how many */
    FILE *out;
    struct json j;
};
struct answer { /* of one sample */
    const char *input;
    int64_t sample, truth; /* truth -1: not known */
    const float *y, *raw;  /* probabilities, of which raw are the network's own outputs; or the same twice */
};
void teller_open(struct teller *t);
void teller_say(struct teller *t, const struct answer *a);
MUST_CHECK enum error teller_close(struct teller *t); /* j is still to be freed, and out to be flushed */
