/* Pictures, JPEG and PNG, whole and in part, by one decoder after another has left it as it is. */
#include "tests/fuzz/fuzz.h"

#include "engine/data/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static struct image *im;
    static unsigned char out[3 * 40 * 40];
    enum { PIXELS = 1 << 20 /* a larger one takes too long */ };
    const char *path = fuzz_file(0, bytes, n);
    int width, height, probed[2];
    if (!im && image_create(&im) != ERR_NONE) abort();
    enum error err = image_probe(path, &probed[0], &probed[1]);
    if (image_read(im, path, &width, &height) != ERR_NONE) return 0;
    if (err == ERR_NONE && (int64_t)width * height > PIXELS) return 0;
    struct visit v = {{true, {0.08, 1}, {0.5, 2}}, rng_key(n, RNG_AUGMENT), n};
    struct box box = n & 1 ? box_draw(&v, width, height) : box_middle(0.875, width, height);
    err = image_decode(im, &(struct view){box, 1 + (int)(n % 40)}, out);
    return err == ERR_BUG ? -1 : 0;
}
