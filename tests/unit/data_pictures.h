/* Files of pictures for tests. Pixel (x, y) of picture 'seed' has the smooth colours of
 * picture_colour, so that it can be recognised behind a lossy format. */
#pragma once
#include "tests/unit/data_fixture.h"

#include <jpeglib.h>
#include <png.h>
#include <sys/stat.h>

static inline uint8_t picture_colour(int seed, int x, int y, int c) {
    return (uint8_t)(60 + (x * (3 + c) + y * (5 - c) + seed * 37) % 128);
}

static inline const char *folder_put(const char *name) {
    const char *path = scratch_path(name);
    assert_int_equal(mkdir(path, 0777), 0);
    return path;
}

static inline void png_put(const char *name, int seed, int width, int height, int type, int bits) {
    FILE *f = fopen(scratch_path(name), "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    static uint8_t row[1 << 16];
    int channels = type == PNG_COLOR_TYPE_RGB ? 3 : type == PNG_COLOR_TYPE_RGBA ? 4 : 1;
    assert_non_null(f);
    png_init_io(png, f);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bits, type, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[256];
        for (int i = 0; i < 256; i++) palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
        png_set_PLTE(png, info, palette, 256);
    }
    png_write_info(png, info);
    for (int y = 0; y < height; y++) {
        for (int i = 0; i < width * channels; i++) {
            uint8_t v = picture_colour(seed, i / channels, y, i % channels);
            if (bits == 16) row[2 * i] = v, row[2 * i + 1] = 77;
            if (bits != 16) row[i] = v;
        }
        png_write_row(png, row);
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    fclose(f);
}

/* The last three: colours at half the width, at half the height, and at a quarter of the width and half the height. */
enum jpeg_form {
    JPEG_FORM_COLOUR,
    JPEG_FORM_GREY,
    JPEG_FORM_PROGRESSIVE,
    JPEG_FORM_CMYK,
    JPEG_FORM_WIDE,
    JPEG_FORM_TALL,
    JPEG_FORM_COARSE
};

static inline void jpeg_put(const char *name, int seed, int width, int height, enum jpeg_form form) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    FILE *f = fopen(scratch_path(name), "wb");
    static uint8_t row[1 << 16];
    assert_non_null(f);
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = (JDIMENSION)width, c.image_height = (JDIMENSION)height;
    c.input_components = form == JPEG_FORM_GREY ? 1 : form == JPEG_FORM_CMYK ? 4 : 3;
    c.in_color_space = form == JPEG_FORM_GREY ? JCS_GRAYSCALE : form == JPEG_FORM_CMYK ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 90, TRUE);
    if (form == JPEG_FORM_PROGRESSIVE) jpeg_simple_progression(&c);
    if (form >= JPEG_FORM_WIDE) {
        c.comp_info[0].h_samp_factor = form == JPEG_FORM_WIDE ? 2 : form == JPEG_FORM_TALL ? 1 : 4;
        c.comp_info[0].v_samp_factor = form == JPEG_FORM_WIDE ? 1 : 2;
    }
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW at = row;
        for (int i = 0; i < width * c.input_components; i++) {
            int channel = i % c.input_components, x = i / c.input_components;
            row[i] = channel == 3 ? 255 : picture_colour(seed, x, y, channel);
        }
        jpeg_write_scanlines(&c, &at, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    fclose(f);
}
