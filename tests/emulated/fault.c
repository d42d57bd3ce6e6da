/* Says which thread of which kernel touched memory that is not there, before the process dies of it. */
#include "tests/emulated/fiber.h"
#include "tests/emulated/inside.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALT_STACK = 64 << 10 };

static struct sigaction others[2]; /* of SIGSEGV and SIGBUS, for what happens outside kernels */

static void on_fault(int number, siginfo_t *info, void *context) {
    char where[512], text[768];
    const struct sigaction *other = others + (number == SIGBUS);
    if (kernel_where(where, sizeof where)) {
        int n = snprintf(text, sizeof text, "%s: nothing lies at %p%s\n", where, info->si_addr,
                         kernel_stack_is_full(info->si_addr) ? " (its stack is full)" : "");
        if (write(2, text, (size_t)n) != n) abort();
    } else if (other->sa_flags & SA_SIGINFO) {
        other->sa_sigaction(number, info, context);
        return;
    } else if (other->sa_handler != SIG_DFL && other->sa_handler != SIG_IGN) {
        other->sa_handler(number);
        return;
    }
    signal(number, SIG_DFL); /* and again */
}

/* The sanitizers tell more. */
void fault_watch(void) {
#ifndef ENGINE_SANITIZED
    struct sigaction now, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    for (int i = 0; i < 2; i++) {
        int number = i ? SIGBUS : SIGSEGV;
        if (sigaction(number, NULL, &now) || now.sa_sigaction == on_fault) continue;
        others[i] = now;
        sigaction(number, &ours, NULL);
    }
#else
    (void)on_fault;
#endif
}

void *fault_stack(void) { /* a fiber's own may be what is full */
    stack_t was, s = {.ss_sp = NULL, .ss_size = ALT_STACK};
    if (sigaltstack(NULL, &was) || !(was.ss_flags & SS_DISABLE)) return NULL;
    s.ss_sp = malloc(ALT_STACK);
    if (!s.ss_sp || sigaltstack(&s, NULL)) abort();
    return s.ss_sp;
}

void fault_stack_free(void *stack) {
    stack_t none = {.ss_flags = SS_DISABLE};
    if (!stack) return;
    sigaltstack(&none, NULL);
    free(stack);
}
