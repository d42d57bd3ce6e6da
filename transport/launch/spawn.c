/* Starting one rank's process with posix_spawn: never fork, since threads may run here (a forked child of CUDA or nng
 * hangs). Every descriptor of this program is close-on-exec; those that a rank inherits are named one by one. */
#include "transport/launch/spawn.h"

#include "engine/base/memory.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void launch_text(char out[LAUNCH_TEXT], const struct launch_self *s, int parent) {
    snprintf(out, LAUNCH_TEXT, "rank=%d,size=%d,local=%d,locals=%d,meeting=%d,out=%d,err=%d,own=%d,parent=%d", s->rank,
             s->size, s->local, s->locals, s->meeting_fd, s->console_out, s->console_err, s->own, parent);
}

/* ---- environment: that of this process, in which a rank's variables replace others of the same names ---- */

enum { TOLD = 5 };
static const char *const told_names[TOLD] = {LAUNCH_VARIABLE, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

static bool entry_is(const char *entry, const char *name) {
    size_t n = strlen(name);
    return !strncmp(entry, name, n) && entry[n] == '=';
}

static bool entry_is_told(const char *entry, const char *const *variables) {
    for (int i = 0; i < TOLD; i++)
        if (entry_is(entry, told_names[i])) return true;
    for (; variables && *variables; variables += 2)
        if (entry_is(entry, *variables)) return true;
    return false;
}

static size_t list_length(const char *const *list) {
    size_t n = 0;
    while (list && list[n]) n++;
    return n;
}

static enum error environment_make(const struct launch_self *self, const char *const *variables, struct pool *pool,
                                   char ***out) {
    size_t count = list_length((const char *const *)environ), kept = 0;
    char **env = pool_alloc(pool, (count + TOLD + list_length(variables) / 2 + 1) * sizeof *env);
    if (!env) return ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (!entry_is_told(environ[i], variables)) env[kept++] = environ[i];
    char text[LAUNCH_TEXT];
    launch_text(text, self, (int)getpid());
    const int values[TOLD] = {0, self->rank, self->size, self->local, self->locals};
    for (int i = 0; i < TOLD; i++) {
        env[kept] = i == 0 ? pool_printf(pool, "%s=%s", told_names[i], text)
                           : pool_printf(pool, "%s=%d", told_names[i], values[i]);
        if (!env[kept++]) return ERR_MEMORY;
    }
    for (; variables && *variables; variables += 2)
        if (!(env[kept++] = pool_printf(pool, "%s=%s", variables[0], variables[1]))) return ERR_MEMORY;
    *out = env;
    return ERR_NONE;
}

/* ---- the process ---- */

/* A descriptor that is duplicated onto itself is inherited under its number. */
static int files_describe(posix_spawn_file_actions_t *files, const struct launch_self *self, int output) {
    const int inherited[] = {self->meeting_fd, self->console_out, self->console_err};
    int why = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!why) why = posix_spawn_file_actions_adddup2(files, output, STDOUT_FILENO);
    if (!why) why = posix_spawn_file_actions_adddup2(files, output, STDERR_FILENO);
    for (int i = 0; i < 3 && !why; i++)
        if (inherited[i] >= 0) why = posix_spawn_file_actions_adddup2(files, inherited[i], inherited[i]);
    return why;
}

/* No signal blocked, the ones that matter not ignored, whatever this process was started with. */
static int process_describe(posix_spawnattr_t *attr, pid_t group) {
    static const int matter[] = {SIGINT, SIGTERM, SIGCHLD, SIGXFSZ};
    sigset_t none, standard;
    sigemptyset(&none);
    sigemptyset(&standard);
    for (size_t i = 0; i < sizeof matter / sizeof *matter; i++) sigaddset(&standard, matter[i]);
    int why = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!why) why = posix_spawnattr_setpgroup(attr, group);
    if (!why) why = posix_spawnattr_setsigmask(attr, &none);
    if (!why) why = posix_spawnattr_setsigdefault(attr, &standard);
    return why;
}

enum error rank_spawn(const struct launch_params *p, const struct launch_self *self, int output, pid_t group,
                      pid_t *out) {
    const char *program = p->program;
    struct pool *pool;
    TRY(pool_create(&pool));
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    char **env;
    int why = 0;
    enum error err = environment_make(self, p->variables, pool, &env);
    if (err != ERR_NONE) goto done;
    why = files_describe(&files, self, output);
    if (!why) why = process_describe(&attr, group);
    union { /* posix_spawn changes none of it, though its type says otherwise */
        const char *const *mine;
        char *const *theirs;
    } words = {p->argv};
    if (!why) why = posix_spawnp(out, program ? program : "/proc/self/exe", &files, &attr, words.theirs, env);
    if (why)
        err = FAIL(ERR_CREATE, "cannot start %s as rank %d: %s", program ? program : "a process", self->rank,
                   strerror(why));
done:
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    pool_free(pool);
    return err;
}
