#include "lab/process.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/train/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { LOOK_US = 20000, GRACE_S = 10, WORDS_MOST = 64, LOG_MOST = 1 << 24, LOG_SHOWN = 2000 };

static enum error start(const struct process *p, struct pool *pool, pid_t *pid) {
    char *words[WORDS_MOST + 2] = {pool_printf(pool, "%s", p->program)};
    int n = 1;
    for (; n <= WORDS_MOST && p->args[n - 1]; n++) {
        words[n] = pool_printf(pool, "%s", p->args[n - 1]);
        if (!words[n]) return ERR_MEMORY;
    }
    if (!words[0]) return ERR_MEMORY;
    if (p->args[n - 1]) return FAIL(ERR_USAGE, "more than %d words for '%s'", WORDS_MOST, words[1]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    const int make = O_WRONLY | O_CREAT | O_TRUNC;
    if (p->out) posix_spawn_file_actions_addopen(&files, 1, p->out, make, 0644);
    if (p->err) posix_spawn_file_actions_addopen(&files, 2, p->err, make, 0644);
    if (p->folder) posix_spawn_file_actions_addchdir_np(&files, p->folder);
    int err = posix_spawnp(pid, p->program, &files, NULL, words, environ);
    posix_spawn_file_actions_destroy(&files);
    if (err) return FAIL(ERR_IO, "cannot start '%s': %s", p->program, strerror(err));
    return ERR_NONE;
}

/* After its limit a process is asked to stop, and killed where it does not. */
static void hurry(const struct process *p, pid_t pid, int64_t began, int *asked) {
    double late = clock_seconds(clock_ns() - began) - p->limit;
    if (p->limit > 0 && late > 0 && *asked == 0) *asked = 1, kill(pid, SIGTERM);
    if (p->limit > 0 && late > GRACE_S && *asked == 1) *asked = 2, kill(pid, SIGKILL);
}

enum error process_run(const struct process *p, struct pool *pool, int *code, struct rusage *used) {
    struct rusage unused;
    int status = 0, told = 0, late = 0;
    int64_t began = clock_ns();
    pid_t pid, got;
    TRY(start(p, pool, &pid));
    while ((got = wait4(pid, &status, WNOHANG, used ? used : &unused)) != pid) {
        if (got < 0 && errno != EINTR) return FAIL(ERR_IO, "cannot wait for '%s': %s", p->program, strerror(errno));
        if (stop_signal() && !told++) kill(pid, SIGTERM);
        hurry(p, pid, began, &late);
        usleep(LOOK_US);
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (late) return FAIL(ERR_TIMEOUT, "'engine %s' has not ended within %g s", p->args[0], p->limit);
    return ERR_NONE;
}

/* ---- the engine's own --------------------------------------------------------------------------- */

static enum error error_of(int code) {
    for (int e = ERR_NONE + 1; e <= ERR_CONFIG; e++)
        if (error_exit_code((enum error)e) == code) return (enum error)e;
    return ERR_BUG;
}

/* What it said: its error and hint, or else the end of its log. */
static enum error failure(const struct process *p, struct pool *pool, int code) {
    char *text = NULL;
    size_t n = 0;
    if (file_read(p->err, LOG_MOST, pool, &text, &n) != ERR_NONE || n == 0)
        return FAIL(error_of(code), "'engine %s' has ended with %d", p->args[0], code);
    char *said = strstr(text, "error: "), *hint = said ? strstr(said, "\nhint: ") : NULL;
    if (hint && !strncmp(text, "error: ", 7)) {
        *hint = '\0';
        return FAIL(error_of(code), "%s\n%.*s", said + 7, (int)strcspn(hint + 7, "\n"), hint + 7);
    }
    return FAIL(error_of(code), "%s", n > LOG_SHOWN ? text + n - LOG_SHOWN : said == text ? text + 7 : text);
}

enum error process_engine(const struct process *p, struct pool *pool) {
    int code = 0;
    TRY(process_run(p, pool, &code, NULL));
    if (stop_signal()) return FAIL(ERR_RESULT, "stopped");
    return code ? failure(p, pool, code) : ERR_NONE;
}
