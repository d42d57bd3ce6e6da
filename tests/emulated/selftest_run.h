/* What tests of the emulated GPU begin with: memory and streams, and processes that must end badly. */
#pragma once
#include "tests/emulated/selftest.h"
#include "tests/harness/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GOOD(call) assert_int_equal((int)(call), (int)cudaSuccess)
#define GIVES(error, call)                                                                                             \
    do {                                                                                                               \
        assert_int_equal((int)(call), (int)(error));                                                                   \
        cudaGetLastError();                                                                                            \
    } while (0)

static inline cudaStream_t stream_new(int gpu) {
    cudaStream_t s;
    GOOD(cudaSetDevice(gpu));
    GOOD(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static inline void *device_new(size_t bytes) {
    void *p;
    GOOD(cudaMalloc(&p, bytes));
    return p;
}

static inline void *pinned_new(size_t bytes) {
    void *p;
    GOOD(cudaHostAlloc(&p, bytes, cudaHostAllocPortable));
    return p;
}

/* Runs in a process of its own, which must end badly and say the word. */
static inline void expect(void (*wrong)(void), const char *word) {
    int pipes[2], status;
    char said[4096] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], 2);
        close(pipes[0]);
        wrong();
        int devices = 0; /* what is wrong may happen on any of them */
        cudaGetDeviceCount(&devices);
        for (int d = 0; d < devices && cudaSetDevice(d) == cudaSuccess; d++) cudaDeviceSynchronize();
        exit(0); /* not _exit: the thread sanitizer tells its status there */
    }
    close(pipes[1]);
    char more[512];
    size_t at = 0;
    for (ssize_t n; (n = read(pipes[0], more, sizeof more)) > 0;) {
        size_t keep = (size_t)n < sizeof said - 1 - at ? (size_t)n : sizeof said - 1 - at;
        memcpy(said + at, more, keep);
        at += keep;
    }
    close(pipes[0]);
    waitpid(child, &status, 0);
    if (status == 0 || !strstr(said, word)) fail_msg("'%s' was not caught: %s", word, said);
}
