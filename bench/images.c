/* How fast one core makes training samples of a folder of pictures: read, decoded, a random part of
 * it, flipped, normalised. Thread CPU time, best of several rounds, in samples a second:
 *
 *   bench_images FOLDER [SIZE [ROUNDS]]
 */
#include "engine/data/transform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double images_cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct setup {
    struct pool *pool;
    struct config_errors *errors;
    struct data_config config;
};

static enum error setup_read(struct setup *s, const char *folder, int size) {
    static struct { struct config_variant data; } whole;
    static const struct config_field fields[] = {
        {"data", CONFIG_VARIANT, 0, .standard = "digits", .help = "x", .extra = &dataset_variants}, {0}};
    const struct config_section section = {.name = "bench", .fields = fields, .size = sizeof whole, .help = "x"};
    char text[4096];
    struct node *root;
    snprintf(text, sizeof text,
             "data: {set: images, train: %.3000s, size: %d, augment: [flip, "
             "random_resized_crop], normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, "
             "0.225]}}\n",
             folder, size);
    TRY(pool_create(&s->pool));
    TRY(config_errors_create(&s->errors));
    TRY(tree_parse(text, strlen(text), "bench", s->pool, s->errors, &root));
    TRY(config_read(&section, root, s->pool, s->errors, &whole));
    s->config = *(const struct data_config *)whole.data.common_config;
    s->config.set = whole.data;
    return ERR_NONE;
}

static enum error images_round_run(const struct transform *t, struct dataset *d, void *raw, float *out, int round,
                                   double *seconds) {
    double begin = images_cpu_seconds();
    for (int64_t i = 0; i < d->size; i++) {
        int32_t label;
        uint64_t id = (uint64_t)(round * d->size + i);
        TRY(transform_read(t, d, i, id, raw, &label, NULL));
        transform_apply(t, d, raw, id, out);
    }
    *seconds = images_cpu_seconds() - begin;
    return ERR_NONE;
}

static enum error images_run(const char *folder, int size, int rounds) {
    struct setup s;
    struct dataset *d;
    struct normalization n;
    struct transform t;
    void *raw, *out;
    double best = 1e30, seconds;
    TRY(setup_read(&s, folder, size));
    TRY(dataset_open(&s.config, true, 1, &d));
    TRY(normalization_find(d, &s.config, &n));
    TRY(transform_init(&t, d, &s.config, &n, true, 1));
    TRY(memory_alloc(dataset_sample_bytes(d), &raw));
    TRY(memory_alloc((size_t)shape_count(&d->shape) * sizeof(float), &out));
    for (int i = 0; i < rounds; i++) {
        TRY(images_round_run(&t, d, raw, out, i, &seconds));
        best = seconds < best ? seconds : best;
    }
    printf("%.0f samples/s a core, of %lld pictures\n", (double)d->size / best, (long long)d->size);
    memory_free(out);
    memory_free(raw);
    dataset_close(d);
    pool_free(s.pool);
    return ERR_NONE;
}

int main(int argc, char **argv) {
    int size = argc > 2 ? atoi(argv[2]) : 224, rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (argc < 2 || size < 1 || rounds < 1) {
        fprintf(stderr, "usage: bench_images FOLDER [SIZE [ROUNDS]]\n");
        return 64;
    }
    enum error err = images_run(argv[1], size, rounds);
    if (err != ERR_NONE) fprintf(stderr, "error: %s\n", error_message());
    return error_exit_code(err);
}
