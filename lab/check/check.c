#include "lab/check/check.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "lab/predict/exchange.h"
#include "transport/algo/algo.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in a case ---- */

static const int MARK = 1; /* the code of a process that has found something */
static const char sign[] = "error: ";
static struct { /* shared with the process that waits */
    char doing[CHECK_WORDS];
    double measured;
} * shared;

void check_measured(double value) {
    if (shared) shared->measured = value;
}

void check_wrong(const char *fmt, ...) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    char words[CHECK_WORDS];
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(words, sizeof words, "%s", sign); /* what a plug-in prints may stand before it */
    n += vsnprintf(words + n, sizeof words - (size_t)n, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&once); /* never given back: the first finding is the only one */
    n = n < (int)sizeof words ? n : (int)sizeof words - 1;
    if (write(STDERR_FILENO, words, (size_t)n) < 0) _exit(MARK);
    _exit(MARK);
}

void check_note(const char *fmt, ...) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    va_list ap;
    if (!shared) return;
    va_start(ap, fmt);
    pthread_mutex_lock(&one);
    vsnprintf(shared->doing, sizeof shared->doing, fmt, ap);
    pthread_mutex_unlock(&one);
    va_end(ap);
}

float check_value(int rank, int64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u * 65537u;
    h ^= h >> 15;
    return ((float)(h % 2001) - 1000) * (h % 3 ? 1e-3f : 1.7f);
}

/* ---- memory ---- */

enum { REGIONS = 256, BEFORE = 64, FILL = 0xA5 };
static struct region {
    char *memory, *data, *end; /* end: where the guard page begins */
    const char *what;
} regions[REGIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct region *region_of(const void *data) {
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].data == data) return &regions[i];
    return NULL;
}

void *guarded_alloc(size_t n, const char *what) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (n + BEFORE + page - 1) / page * page;
    char *memory = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + pages, page, PROT_NONE)) check_wrong("no memory of %zu bytes", n);
    pthread_mutex_lock(&lock);
    struct region *r = region_of(NULL);
    if (!r) check_wrong("more than %d guarded buffers", REGIONS);
    *r = (struct region){memory, memory + pages - n, memory + pages, what};
    pthread_mutex_unlock(&lock);
    memset(memory, FILL, pages - n);
    return r->data;
}

void guarded_check(const void *p, const char *what) {
    for (int i = 1; i <= BEFORE; i++)
        if (((const unsigned char *)p)[-i] != FILL)
            check_wrong("%s: byte %d before its beginning was written", what, i);
}

void guarded_free(void *p) {
    pthread_mutex_lock(&lock);
    struct region *r = region_of(p);
    if (r) {
        munmap(r->memory, (size_t)(r->end - r->memory) + (size_t)sysconf(_SC_PAGESIZE));
        *r = (struct region){NULL, NULL, NULL, NULL};
    }
    pthread_mutex_unlock(&lock);
}

/* In a signal's handler. */
static const char *region_explain(const void *address) {
    const char *at = address;
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].data && at >= regions[i].end && at < regions[i].end + sysconf(_SC_PAGESIZE))
            return regions[i].what;
    return NULL;
}

/* A sanitizer has a heap of its own. The C library's is not in use then, and must not be asked by two threads: each would
 * begin it, and count as its first thread, so that the end of the second one is an assertion of the library's that fails. */
size_t check_heap(void) {
#ifdef ENGINE_SANITIZED
    return 0;
#else
    return mallinfo2().uordblks + mallinfo2().hblkhd;
#endif
}

void check_leaks(void (*fn)(void *user), void *user) {
    enum { CALLS = 64 };
    fn(user);
    size_t before = check_heap();
    for (int i = 0; i < CALLS; i++) fn(user);
    size_t after = check_heap();
    if (after >= before + CALLS * sizeof(void *))
        check_wrong("%d calls have left %zu bytes allocated, about %zu a call", (int)CALLS, after - before,
                    (after - before) / CALLS);
}

/* ---- a case's process ---- */

_Noreturn static void case_run(const struct check *c, int out, void (*fn)(void *user), void *user) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], SIG_DFL);
    dup2(out, STDERR_FILENO);
    mallopt(M_ARENA_MAX, 1);
    log_set_level(LOG_ERROR);
    plugin_set_patience(c->timeout * 0.8);
    plugin_explain_crash(region_explain);
    fn(user);
    _exit(0);
}

/* Reads what it says until it ends or has had its time; false: it had to be killed. */
static bool case_wait(pid_t pid, int in, double seconds, char *words, size_t size) {
    int64_t end = clock_after(seconds);
    size_t n = 0;
    char more[256]; /* what has no room is read, too: nobody waits for it to be */
    struct pollfd p = {.fd = in, .events = POLLIN};
    for (;;) {
        int ready = poll(&p, 1, clock_ms_until(end));
        bool room = n < size - 1;
        ssize_t got = ready > 0 ? read(in, room ? words + n : more, room ? size - 1 - n : sizeof more) : -1;
        if (ready > 0 && (got == 0 || (got < 0 && errno != EINTR))) break;
        if (got > 0 && room) n += (size_t)got;
        if (clock_ns() >= end) {
            kill(pid, SIGKILL);
            words[n] = '\0';
            return false;
        }
    }
    words[n] = '\0';
    return true;
}

/* The first line with an error, without its sign: the engine's, or a sanitizer's. */
static const char *case_first_error(char *words) {
    static const char other[] = "ERROR: ";
    char *at = strstr(words, sign) ? strstr(words, sign) : strstr(words, other);
    at = at ? at + strlen(sign) : words;
    at[strcspn(at, "\n")] = '\0';
    return at;
}

static void case_note(struct check *c, const char *what, bool good, const char *words) {
    if (good)
        c->passed++;
    else if (c->wrong++ == 0)
        snprintf(c->first, sizeof c->first, "%s: %s", what, words);
    if (c->out) fprintf(c->out, "%-6s %s%s%s\n", good ? "ok" : "WRONG", what, good ? "" : ": ", good ? "" : words);
    if (c->out) fflush(c->out);
}

static void case_end(struct check *c, const char *what, bool ended, int status, char *said) {
    char words[2 * CHECK_WORDS + 64];
    if (ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        case_note(c, what, true, "");
        return;
    }
    const char *error = case_first_error(said);
    bool found = ended && WIFEXITED(status) && WEXITSTATUS(status) == MARK;
    if (!ended)
        snprintf(words, sizeof words, "it did not end (%s)", shared->doing);
    else if (WIFSIGNALED(status))
        snprintf(words, sizeof words, "it crashed: signal %d (%s)", WTERMSIG(status), shared->doing);
    else
        snprintf(words, sizeof words, "%s%s%s%s", error, found || !*shared->doing ? "" : " (",
                 found ? "" : shared->doing, found || !*shared->doing ? "" : ")");
    case_note(c, what, false, words);
}

/* A process of ranks as threads, which no other thread of this one disturbs: engine check has none. */
bool check_case(struct check *c, const char *what, void (*fn)(void *user), void *user) {
    static char said[64 * CHECK_WORDS];
    int ends[2], status = 0, wrong = c->wrong;
    if (!shared) shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(ends)) abort();
    shared->doing[0] = '\0';
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) case_run(c, ends[1], fn, user);
    close(ends[1]);
    bool ended = pid > 0 && case_wait(pid, ends[0], 20 * c->timeout + 20, said, sizeof said);
    close(ends[0]);
    if (pid > 0) waitpid(pid, &status, 0);
    c->measured = shared->measured;
    case_end(c, what, ended, status, said);
    return c->wrong == wrong;
}

/* ---- a plug-in ---- */

enum error check_plugin(struct check *c) {
    const struct plugin *p;
    TRY(plugin_open(c->name, PLUGIN_ANY, NULL, &p));
    const struct engine_plugin *of = p->of;
    if (of->algorithm) check_algorithm(c);
    if (of->compressor) check_compressor(c, of->compressor, p);
    if (of->optimizer) check_optimizer(c, of->optimizer, p);
    if (of->share) check_share(c, p);
    if (of->schedule) check_schedule(c, p);
    return c->wrong ? FAIL(ERR_RESULT, "'%s': %d of %d cases are wrong\n%s", c->name, c->wrong, c->wrong + c->passed,
                           c->first)
                    : ERR_NONE;
}

/* Its time is a sum of both, so each is the time where the other costs nothing. */
enum error check_cost(const char *name, int ranks, double *latencies, double *buffers) {
    const double bytes = 1 << 22;
    const struct wire ports[] = {{1, 0}, {0, 1 / bytes}};
    double *out[] = {latencies, buffers};
    for (int i = 0; i < 2; i++) {
        const struct network_plan p = {.devices = ranks, .per_host = 1, .oversubscription = 1, .outside = ports[i]};
        struct exchange e;
        enum error err = exchange_open(&p, false, 0, &e);
        if (err == ERR_NONE) err = algo_named(name, NULL, &e.plugged);
        e.gamma = 0;
        if (err == ERR_NONE) err = exchange_all_reduce(&e, SCHEME_OWN, bytes);
        *out[i] = 0;
        for (int r = 0; r < ranks && err == ERR_NONE; r++) *out[i] = fmax(*out[i], e.at[r]);
        exchange_close(&e);
        TRY(err);
    }
    return ERR_NONE;
}
