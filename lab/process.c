#include "lab/process.h"

#include "engine/train/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
enum { LOOK_US = 20000, WORDS_MOST = 64 };

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

enum error process_run(const struct process *p, struct pool *pool, int *code, struct rusage *used) {
    struct rusage unused;
    int status = 0, told = 0;
    pid_t pid, got;
    TRY(start(p, pool, &pid));
    while ((got = wait4(pid, &status, WNOHANG, used ? used : &unused)) != pid) {
        if (got < 0 && errno != EINTR) return FAIL(ERR_IO, "cannot wait for '%s': %s", p->program, strerror(errno));
        if (stop_signal() && !told++) kill(pid, SIGTERM);
        usleep(LOOK_US);
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ERR_NONE;
}
