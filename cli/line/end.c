#include "cli/line/end.h"

int cli_fail(enum error err) {
    fprintf(stderr, "error: %s\n", error_message());
    if (*error_hint()) fprintf(stderr, "hint: %s\n", error_hint());
    return error_exit_code(err);
}

int cli_reported(enum error err, const char *report) {
    if (!report) return cli_fail(err);
    fputs(report, stderr);
    return error_exit_code(err);
}

int cli_end(enum error err) {
    return err == ERR_NONE ? 0 : cli_fail(err);
}

enum error cli_json(enum error err, struct json *j, FILE *out) {
    if (err == ERR_NONE) err = json_done(j);
    if (err == ERR_NONE) fprintf(out, "%s\n", j->text);
    json_fini(j);
    return err;
}
