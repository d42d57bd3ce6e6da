/* Trains the same network as single and as dp from C, and compares the results bit for bit.
 * cc train.c $(pkg-config --cflags --libs engine) -o train && ./train */
#include <engine/engine.h>
#include <stdio.h>
#include <string.h>

static int train(const char *mode, const char *devices, struct engine_result *r) {
    const char *sets[] = {mode, devices, "batch={size: 64, shards: 4}", "threads=1", "train=1ep", "checkpoint=off"};
    int code = engine_run(NULL, sets, 6, r);
    if (code)
        fprintf(stderr, "%s: %s\n", mode, engine_message());
    else
        printf("%-12s %lld steps, %.0f samples/s, accuracy %.3f, weights %.16s...\n", mode, r->steps, r->samples_per_s,
               r->val_accuracy, r->weights_sha256);
    return code;
}

int main(void) {
    struct engine_result a, b;
    printf("engine %s\n", engine_version());
    if (train("mode=single", "devices=cpu:1", &a) || train("mode=dp", "devices=cpu:4", &b)) return 1;
    printf("the same bits: %s\n", strcmp(a.weights_sha256, b.weights_sha256) ? "no" : "yes");
    return strcmp(a.weights_sha256, b.weights_sha256) != 0;
}
