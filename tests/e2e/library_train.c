/* Trains and checks configurations for cli_library_test, which compares what this prints with what
 * the program says of the same configuration. */
#include <engine/engine.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define need(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: not (%s); %s\n", __LINE__, #condition, engine_message());                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

int main(int argc, char **argv) {
    const char *const *sets = (const char *const *)argv + 1;
    struct engine_result r, again;
    const char *point = setlocale(LC_NUMERIC, "") ? localeconv()->decimal_point : ".";
    const char *unknown[] = {"optimiser=sgd"}, *ddp[] = {"mode=ddp", "devices=cpu:2"};
    need(engine_validate(NULL, sets, argc - 1) == 0);
    need(engine_validate("/no/such/file.yaml", NULL, 0) == 66 && *engine_message());
    need(engine_validate(NULL, unknown, 1) == 78);
    need(engine_run(NULL, unknown, 1, &r) == 78);
    need(engine_validate(NULL, ddp, 2) == 0);
    need(engine_run(NULL, ddp, 2, &r) == 69 && strstr(engine_message(), "ddp") && *engine_hint());
    need(engine_run(NULL, sets, argc - 1, &r) == 0);
    need(engine_run(NULL, sets, argc - 1, &again) == 0); /* a process may train again */
    need(!strcmp(r.weights_sha256, again.weights_sha256) && strcmp(r.run_dir, again.run_dir));
    need(r.seconds > 0 && r.samples_per_s > 0);
    need(!strcmp(localeconv()->decimal_point, point)); /* the caller's, as it was */
    setlocale(LC_NUMERIC, "C");
    printf("%s %s %s %lld %.17g %.17g %.17g\n", engine_version(), r.weights_sha256, r.losses_sha256, r.steps,
           r.train_loss, r.val_loss, r.val_accuracy);
    return 0;
}
