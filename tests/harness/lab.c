#include "tests/harness/lab.h"

#include "lab/lesson/run.h"
#include "tests/harness/timing.h"

#include <string.h>

int lab_assert_holds(const struct program *p, const char *name) {
    const struct json_value *root;
    struct pool *pool;
    if (p->code != 0 && p->code != 1) fail_msg("lab %s: exit code %d\n%s%s", name, p->code, p->out, p->err);
    assert_ok(pool_create(&pool));
    /* A step that failed leaves no JSON. */
    if (json_parse(p->out, strlen(p->out), LESSON_CLAIMS_LIMITS, pool, &root) != ERR_NONE)
        fail_msg("lab %s: exit code %d\n%s%s", name, p->code, p->out, p->err);
    const struct json_value *claims = json_get(root, "claims");
    int n = claims->count, broken = 0;
    for (int i = 0; i < n; i++) {
        const struct json_value *c = &claims->children[i], *holds = json_get(c, "holds");
        if (holds->kind == JSON_NULL || holds->truth) continue; /* null: not judged in quick form */
        bool measured = !strstr(json_get(c, "numbers")->text, "not measured");
        bool counts = timing_checked() || !measured || !json_get(c, "timed")->truth;
        print_message("%s: %s: %s (%s)\n", name, counts ? "does NOT hold" : "about time, does not hold here",
                      json_get(c, "check")->text, json_get(c, "numbers")->text);
        broken += counts;
    }
    if (broken) fail_msg("lab %s: %d of %d claims do not hold", name, broken, n);
    pool_free(pool);
    return n;
}
