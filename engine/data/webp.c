/* WebP through libwebp's simple decoder, or a word on how to do without. */
#include "engine/data/webp.h"

#include <string.h>

#ifdef ENGINE_HAVE_WEBP
#include <webp/decode.h>
#endif

bool webp_is(const unsigned char *bytes, size_t n) {
    return n >= 12 && !memcmp(bytes, "RIFF", 4) && !memcmp(bytes + 8, "WEBP", 4);
}

#ifdef ENGINE_HAVE_WEBP

bool webp_readable(void) {
    return true;
}

enum error webp_probe(const char *path, const unsigned char *bytes, size_t n, int *width, int *height) {
    WebPBitstreamFeatures f;
    if (WebPGetFeatures(bytes, n, &f) != VP8_STATUS_OK)
        return FAIL(ERR_DATA, "%s: a WebP whose header is damaged or cut off", path);
    if (f.has_animation) return FAIL(ERR_DATA, "%s: animated WebP is not supported", path);
    *width = f.width;
    *height = f.height;
    return ERR_NONE;
}

enum error webp_decode(const char *path, const unsigned char *bytes, size_t n, int width, int height,
                       unsigned char *out) {
    size_t row = (size_t)width * 3;
    if (WebPDecodeRGBInto(bytes, n, out, row * (size_t)height, (int)row)) return ERR_NONE;
    return FAIL(ERR_DATA, "%s: the picture is cut off or damaged", path);
}

#else

bool webp_readable(void) {
    return false;
}

enum error webp_probe(const char *path, const unsigned char *bytes, size_t n, int *width, int *height) {
    (void)bytes, (void)n, (void)width, (void)height;
    return FAIL(ERR_DATA,
                "%s: a WebP picture, which this build does not read\nconvert it (dwebp FILE.webp -o FILE.png), or "
                "install libwebp (Debian's libwebp-dev) and build again",
                path);
}

enum error webp_decode(const char *path, const unsigned char *bytes, size_t n, int width, int height,
                       unsigned char *out) {
    (void)out;
    return webp_probe(path, bytes, n, &width, &height);
}

#endif
