/* A started rank reads what its starter put into ENGINE_LAUNCH. */
#include "transport/launch/launch.h"
#include "transport/launch/spawn.h"

#include "engine/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Nine digits at most, so that nothing overflows; what is printed back must be what was read, so
 * that nothing is let pass. */
static bool self_parse(const char *text, struct launch_self *s, int *parent) {
    int own;
    if (sscanf(text, "rank=%9d,size=%9d,local=%9d,locals=%9d,meeting=%9d,out=%9d,err=%9d,own=%9d,parent=%9d", &s->rank,
               &s->size, &s->local, &s->locals, &s->meeting_fd, &s->console_out, &s->console_err, &own, parent) != 9)
        return false;
    s->own = own == 1;
    char again[LAUNCH_TEXT];
    launch_text(again, s, *parent);
    bool inside = s->rank >= 0 && s->rank < s->size && s->local >= 0 && s->local < s->locals;
    return !strcmp(text, again) && inside && *parent > 0;
}

/* Open, and not to be handed on to what this process may start in turn. -1 stands for none. */
static bool descriptor_keep(int fd) {
    return fd == -1 || (fd > STDERR_FILENO && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0);
}

static bool variable_is(const char *name, int value) {
    const char *text = getenv(name);
    return text && atoi(text) == value;
}

/* A shell or a script may stand between the starter and this process, but no other launcher. */
static enum error parent_check(const struct launch_self *s, int parent) {
    int p = (int)getppid();
    while (p && p != parent) p = process_parent(p);
    if (!p) return FAIL(ERR_PEER, "rank %d: process %d, which started it, is gone", s->rank, parent);
    if (variable_is("RANK", s->rank) && variable_is("WORLD_SIZE", s->size)) return ERR_NONE;
    return FAIL(ERR_USAGE, "%s says rank %d of %d, RANK and WORLD_SIZE say something else\nuse one launcher, not two",
                LAUNCH_VARIABLE, s->rank, s->size);
}

enum error launch_self(struct launch_self *out, bool *started) {
    *out = (struct launch_self){.meeting_fd = -1, .console_out = -1, .console_err = -1};
    const char *text = getenv(LAUNCH_VARIABLE);
    *started = text != NULL;
    if (!text) return ERR_NONE;
    int parent;
    if (!self_parse(text, out, &parent))
        return FAIL(ERR_USAGE, "%s='%s' is not what a starter writes\nunset it: it is for the engine's own use",
                    LAUNCH_VARIABLE, text);
    if (!descriptor_keep(out->meeting_fd) || !descriptor_keep(out->console_out) || !descriptor_keep(out->console_err))
        return FAIL(ERR_USAGE, "%s='%s' names a descriptor that is not open", LAUNCH_VARIABLE, text);
    /* First the wish, then the look: a starter that died in between is seen by one of the two. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return FAIL(ERR_BUG, "prctl(PR_SET_PDEATHSIG): %s", strerror(errno));
    TRY(parent_check(out, parent));
    unsetenv(LAUNCH_VARIABLE);
    signal(SIGTTOU, SIG_IGN); /* rank 0's console may be a terminal that this process group is not
                                 in front of */
    return ERR_NONE;
}
