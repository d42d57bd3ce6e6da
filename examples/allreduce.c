/* Ranks that say hello, add, gather, and hand a message around.
 *
 *     cc allreduce.c $(pkg-config --cflags --libs engine) -o allreduce
 *     engine launch -n 4 ./allreduce          (or torchrun --no-python, mpirun, srun)
 */
#include <engine/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Any failure ends this rank; the others are told by their own calls. */
static void need(int code, const char *what) {
    if (code == 0) return;
    fprintf(stderr, "%s: %s\n", what, engine_message());
    if (*engine_hint()) fprintf(stderr, "hint: %s\n", engine_hint());
    exit(code);
}

int main(void) {
    struct engine_group *g;
    need(engine_group_open(NULL, &g), "open");
    int rank = engine_group_rank(g), size = engine_group_size(g);
    printf("hello from rank %d of %d\n", rank, size);

    /* all_reduce: every rank leaves with the sum; 1 + 2 + ... + size is the same for all */
    enum { N = 1 << 20 };
    float *x = malloc(N * sizeof *x);
    if (!x) return 71;
    for (int i = 0; i < N; i++) x[i] = (float)(rank + 1);
    need(engine_all_reduce(g, x, x, N, ENGINE_F32, ENGINE_SUM), "all_reduce");
    int right = 1;
    for (int i = 0; i < N; i++) right = right && x[i] == (float)(size * (size + 1) / 2);

    /* all_gather: what each has, in the order of ranks */
    int mine = rank * rank, all[64] = {0};
    need(engine_all_gather(g, &mine, all, 1, ENGINE_I32), "all_gather");
    for (int r = 0; r < size; r++) right = right && all[r] == r * r;

    /* send and recv: a word goes around; the first rank sends first, so that nobody waits for ever
     */
    char word[32] = "";
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    if (rank == 0) snprintf(word, sizeof word, "around %d ranks", size);
    if (size > 1 && rank == 0) need(engine_send(g, word, sizeof word, ENGINE_U8, next, 0), "send");
    if (size > 1) need(engine_recv(g, word, sizeof word, ENGINE_U8, last, 0, NULL), "recv");
    if (size > 1 && rank > 0) need(engine_send(g, word, sizeof word, ENGINE_U8, next, 0), "send");

    need(engine_barrier(g), "barrier");
    if (rank == 0)
        printf("sum %g, squares up to %d, '%s' came back; all_reduce by %s\n", (double)x[0], all[size - 1], word,
               engine_group_choice(g, N * sizeof *x));
    printf("rank %d: %s\n", rank, right ? "all right" : "WRONG");
    free(x);
    engine_group_close(g);
    return !right;
}
