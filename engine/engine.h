/* The engine as a library: train from a configuration, inside your own program.
 *
 *     #include <engine/engine.h>
 *     struct engine_result r;
 *     const char *sets[] = {"mode=dp", "devices=cpu:2", "train=1ep"};
 *     int code = engine_run(NULL, sets, 3, &r);            // or a path to a YAML file
 *     if (code) fprintf(stderr, "%s\n", engine_message()); else printf("%s\n", r.weights_sha256);
 *
 * Compile with: cc program.c $(pkg-config --cflags --libs engine). Modes single and dp run inside
 * the calling process. ddp starts processes of the engine program, which a library cannot be:
 * engine_run refuses it (69); use 'engine run' for it. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#define ENGINE_API __attribute__((visibility("default")))
#else
#define ENGINE_API
#endif

struct engine_result {
    long long steps;
    double train_loss, val_loss, val_accuracy, samples_per_s, seconds;
    char weights_sha256[65], losses_sha256[65];
    char run_dir[4096];
};

ENGINE_API const char *engine_version(void);
/* Trains. config: path of a YAML file, NULL for the defaults; sets: "key=value" changes on top of
 * it. Gives 0, or the exit code that the program would end with; *out is filled on 0. Prints
 * nothing but what is wrong with a configuration, on standard error. One run at a time in a
 * process. */
ENGINE_API int engine_run(const char *config, const char *const *sets, int nsets,
                          struct engine_result *out);
/* Checks a configuration, its data and its model: 0, or the exit code. */
ENGINE_API int engine_validate(const char *config, const char *const *sets, int nsets);
/* The calling thread's last failure. */
ENGINE_API const char *engine_message(void);

#ifdef __cplusplus
}
#endif
