/* WebP pictures, where libwebp is there to read them (CMake finds it, or does not). */
#pragma once
#include "engine/base/error.h"
#include <stddef.h>

/* Whether this build reads them. */
bool webp_readable(void);
/* Whether a file that begins with these bytes is one. */
bool webp_is(const unsigned char *bytes, size_t n);
enum { WEBP_BEGIN = 64 /* bytes that tell the size */ };
/* The size in a header, which may lie. ERR_DATA: it is damaged, moves, or this build reads none. */
MUST_CHECK enum error webp_probe(const char *path, const unsigned char *bytes, size_t n, int *width, int *height);
/* Three bytes a pixel, transparency left out: room for width * height * 3, which are webp_probe's. */
MUST_CHECK enum error webp_decode(const char *path, const unsigned char *bytes, size_t n, int width, int height,
                                  unsigned char *out);
