/* Runs the engine program as a user would, and reads what it says. */
#pragma once
#include "engine/base/json.h"
#include "tests/harness/harness.h"

#include <sys/types.h>

enum { PROGRAM_ARGS = 64, PROGRAM_TEXT = 1 << 20 };
struct program {
    const char *args[PROGRAM_ARGS]; /* after "engine"; NULL-terminated */
    /* results */
    int code; /* exit code, or -signal */
    char out[PROGRAM_TEXT], err[PROGRAM_TEXT];
    double seconds;
    /* running */
    pid_t pid;
    char out_path[512], err_path[520];
    int64_t started;
};
/* Starts and waits; kills (and fails the test) after limit_s seconds. The words end with NULL. */
void program_run(struct program *p, double limit_s, ...) __attribute__((sentinel));
void program_start(struct program *p, const char *const *words);
/* The same for any program, words[0], which is looked for in PATH. */
void program_spawn(struct program *p, const char *const *words);
/* Settings ("devices=cpu:2"), as the next ones take them. */
#define SETS(...)                                                                                                      \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
/* Settings of a small network that three processes train in a moment. */
extern const char *const program_small[];
/* Starts 'engine run --json' with the settings of both lists, in a run directory of its own, unless one names it. */
void program_train_start(struct program *p, const char *const *sets, const char *const *more);
/* Waits for it; fails the test when it hangs. */
void program_train_end(struct program *p);
/* Both; fails the test when it ends with another code than 0. */
void program_train(struct program *p, const char *const *sets, const char *const *more);
/* Fails the test unless both trainings had the same losses and weights; what: what the second was. */
void program_assert_same(const struct program *a, const struct program *b, const char *what);
/* Fail the test, with all that the program printed, unless it ended with this code; unless the text has this part. */
void program_assert_code(const struct program *p, int code);
void program_assert_says(const char *text, const char *part);
/* Waits; false when it was still running after limit_s and had to be killed. */
bool program_wait(struct program *p, double limit_s);
/* Whether it has ended; it is still to be waited for. */
bool program_ended(const struct program *p);
/* The Python of ENGINE_TORCH_PYTHON, or the system's, where it can import these modules ("torch,
 * numpy"); else NULL, after a line that says so. */
const char *program_python(struct program *p, const char *modules);
/* The JSON object on standard output; fails the test when there is none. */
const struct json_value *program_json(const struct program *p, struct pool *pool);
/* A string of the JSON on standard output, in a rotating static buffer. */
const char *program_string(const struct program *p, const char *key);
/* A number, by a path of keys: "val.accuracy". */
double program_number(const struct program *p, const char *path);
/* Processes of this program that are alive and run the engine in the scratch folder: counts them by
 * /proc. */
int program_orphans(void);
/* The process of a rank that this program (ddp) has started, waiting up to limit_s for it; fails
 * the test when there is none. */
pid_t program_rank(const struct program *p, int rank, double limit_s);
/* Waits until standard error holds the text. */
void program_wait_text(const struct program *p, const char *text, double limit_s);
