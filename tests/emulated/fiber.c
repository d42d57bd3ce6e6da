/* The switch saves what a call must keep. On processors without one of our own it is ucontext's, which is slow. */
#include "tests/emulated/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef EMULATED_THREAD_SANITIZER
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *);
void __tsan_release(void *);
enum { NO_ORDER = 1 };
#endif

#if defined __x86_64__
void emulated_switch(void **save, void *load);
__asm__(".text\n.p2align 4\n.globl emulated_switch\n.hidden emulated_switch\n"
        ".type emulated_switch, @function\nemulated_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emulated_switch, . - emulated_switch\n");

static void *prepare(char *top, void (*main)(void)) {
    void **at = (void **)(void *)top;
    *--at = NULL; /* main's return address: it has none */
    *--at = (void *)(uintptr_t)main;
    for (int i = 0; i < 6; i++) *--at = NULL;
    return at;
}
#elif defined __aarch64__
void emulated_switch(void **save, void *load);
__asm__(".text\n.p2align 4\n.globl emulated_switch\n.hidden emulated_switch\n"
        ".type emulated_switch, %function\nemulated_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n"
        ".size emulated_switch, . - emulated_switch\n");

static void *prepare(char *top, void (*main)(void)) {
    void **at = (void **)(void *)(top - 160);
    memset(at, 0, 160);
    at[11] = (void *)(uintptr_t)main; /* x30 */
    return at;
}
#else
#include <ucontext.h>

static void emulated_switch(void **save, void *load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, load);
}

static void *prepare(char *top, void (*main)(void)) {
    ucontext_t *c = calloc(1, sizeof *c);
    if (!c || getcontext(c)) abort();
    c->uc_stack.ss_sp = top - FIBER_STACK / 2;
    c->uc_stack.ss_size = FIBER_STACK / 2;
    makecontext(c, main, 0);
    return c;
}
#endif

void fiber_create(struct fiber *f, const struct fiber *by, void (*main)(void), unsigned colour) {
    char *map = mmap(NULL, FIBER_GUARD + FIBER_STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED || mprotect(map, FIBER_GUARD, PROT_NONE)) abort();
    f->stack = map;
    f->point = prepare(map + FIBER_GUARD + FIBER_STACK - colour % 16 * 256, main);
#ifdef EMULATED_THREAD_SANITIZER
    void *now = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(by->annotation, NO_ORDER);
    f->annotation = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(now, NO_ORDER);
#else
    (void)by;
#endif
}

void fiber_free(struct fiber *f) {
#ifdef EMULATED_THREAD_SANITIZER
    __tsan_destroy_fiber(f->annotation);
#endif
    munmap(f->stack, FIBER_GUARD + FIBER_STACK);
}

void fiber_adopt(struct fiber *f) {
    memset(f, 0, sizeof *f);
#ifdef EMULATED_THREAD_SANITIZER
    f->annotation = __tsan_get_current_fiber();
#endif
}

void fiber_switch(struct fiber *from, struct fiber *to) {
#ifdef EMULATED_THREAD_SANITIZER
    __tsan_switch_to_fiber(to->annotation, NO_ORDER);
#endif
    emulated_switch(&from->point, to->point);
}

void fiber_gives(void *what) {
#ifdef EMULATED_THREAD_SANITIZER
    __tsan_release(what);
#else
    (void)what;
#endif
}

void fiber_takes(void *what) {
#ifdef EMULATED_THREAD_SANITIZER
    __tsan_acquire(what);
#else
    (void)what;
#endif
}

void *fiber_memory(void *what, size_t bytes) {
    if (what && FIBERS_LEAST == 1) return what;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (what ? MAP_FIXED : 0);
    void *p = mmap(what, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}
