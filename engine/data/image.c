/* Pictures through libjpeg and libpng (WebP: webp.c).
 *
 * Both libraries leave by longjmp when a file is bad: every call of them is in a 'body' that
 * library_call() runs, and bodies own nothing. Sizes are checked before memory is taken for them: by
 * image_probe, by the header's own, by limits set in the libraries, and on the number of scans, of
 * which a few KB can hold thousands that each cost as much as the picture. */
#include "engine/data/image.h"

#include "engine/base/file.h"
#include "engine/data/input.h"
#include "engine/data/webp.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <jerror.h>
#include <jpeglib.h>

enum {
    SCANS_MOST = 100,
    MESSAGE = 256,
    BORDER = 8 /* columns beside a part of a JPEG, as colours are smoothed: with them it is what it is in the whole */
};
#define NO_PICTURE "neither JPEG nor PNG nor WebP"
struct image {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    png_structp png;
    png_infop info;
    jmp_buf jump;
    enum error failed; /* why a library has left, and in its words */
    char message[MESSAGE];

    const char *path;
    unsigned char *file, *pixels;
    size_t file_room, pixels_room, bytes, at;
    enum { JPEG, PNG, WEBP } format;
    int width, height;

    int scale, components; /* of the decoding that goes on; scale: in eighths */
    int first, last;       /* rows [first, last) are kept */
    int left, right;       /* columns that are made, at least */
    int row;
    struct resizer resizer;
};

/* ---- how files begin ---- */
static const unsigned char png_begin[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

bool image_is_name(const char *name) {
    const char *dot = strrchr(name, '.');
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};
    for (int i = 0; dot && dot != name && i < 4; i++)
        if (!strcasecmp(dot, endings[i])) return true;
    return false;
}

static enum error image_check_size(const char *path, int64_t width, int64_t height) {
    if (width >= 1 && height >= 1 && width <= IMAGE_SIDE_MOST && height <= IMAGE_SIDE_MOST &&
        width * height <= IMAGE_PIXELS_MOST)
        return ERR_NONE;
    return FAIL(ERR_DATA, "%s: a picture of %lld x %lld pixels\nat most %d million are read", path, (long long)width,
                (long long)height, IMAGE_PIXELS_MOST >> 20);
}

static enum error image_file_open(const char *path, int *fd, int64_t *size) {
    TRY(input_open_file(path, fd, size));
    if (*size <= IMAGE_FILE_MOST) return ERR_NONE;
    close(*fd);
    return FAIL(ERR_DATA, "%s: %lld bytes, but a picture may have at most %d", path, (long long)*size, IMAGE_FILE_MOST);
}

static int64_t big_endian(const unsigned char *p, int n) {
    int64_t v = 0;
    for (int i = 0; i < n; i++) v = v << 8 | p[i];
    return v;
}

/* A JPEG is a chain of segments (0xff, kind, length in two bytes, ...); the kinds of a frame tell
 * the size. */
static enum error jpeg_probe(int fd, int64_t size, const char *path, int *width, int *height) {
    enum { SEGMENTS_MOST = 2000 };
    unsigned char p[9];
    int64_t at = 2;
    for (int k = 0; k < SEGMENTS_MOST && at + (int64_t)sizeof p <= size; k++) {
        TRY(file_pread_all(fd, p, sizeof p, at, path));
        if (p[0] != 0xff) break;
        bool frame = p[1] >= 0xc0 && p[1] <= 0xcf && p[1] != 0xc4 && p[1] != 0xc8 && p[1] != 0xcc;
        if (frame) {
            *height = (int)big_endian(p + 5, 2), *width = (int)big_endian(p + 7, 2);
            return image_check_size(path, *width, *height);
        }
        if (p[1] == 0xd9 || p[1] == 0xda) break;
        bool bare = p[1] == 0xff || p[1] == 1 || (p[1] >= 0xd0 && p[1] <= 0xd7);
        at += p[1] == 0xff ? 1 : bare ? 2 : 2 + big_endian(p + 2, 2);
    }
    return FAIL(ERR_DATA, "%s: a JPEG whose header is damaged or cut off", path);
}

static enum error fd_probe(int fd, int64_t size, const char *path, int *width, int *height) {
    unsigned char p[WEBP_BEGIN] = {0};
    size_t n = size < (int64_t)sizeof p ? (size_t)size : sizeof p;
    if (n < 24) return FAIL(ERR_DATA, "%s: " NO_PICTURE, path);
    TRY(file_pread_all(fd, p, n, 0, path));
    if (webp_is(p, n)) {
        TRY(webp_probe(path, p, n, width, height));
        return image_check_size(path, *width, *height);
    }
    if (p[0] == 0xff && p[1] == 0xd8) return jpeg_probe(fd, size, path, width, height);
    if (memcmp(p, png_begin, sizeof png_begin) != 0 || memcmp(p + 12, "IHDR", 4) != 0)
        return FAIL(ERR_DATA, "%s: " NO_PICTURE ": it begins with %02x %02x %02x %02x", path, p[0], p[1], p[2], p[3]);
    int64_t w = big_endian(p + 16, 4), h = big_endian(p + 20, 4);
    TRY(image_check_size(path, w, h));
    *width = (int)w, *height = (int)h;
    return ERR_NONE;
}

enum error image_probe(const char *path, int *width, int *height) {
    int fd;
    int64_t size;
    TRY(image_file_open(path, &fd, &size));
    enum error err = fd_probe(fd, size, path, width, height);
    close(fd);
    return err;
}

/* ---- errors of the libraries ---- */
static enum error library_call(struct image *im, void (*body)(struct image *im)) {
    if (setjmp(im->jump) == 0) {
        body(im);
        return ERR_NONE;
    }
    return FAIL(im->failed, "%s: %s", im->path, im->message);
}

static void give_up(struct image *im, enum error err, const char *message) {
    im->failed = err;
    snprintf(im->message, sizeof im->message, "%s", message);
    longjmp(im->jump, 1);
}

static void jpeg_exit(j_common_ptr c) {
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    give_up(c->client_data, c->err->msg_code == JERR_OUT_OF_MEMORY ? ERR_MEMORY : ERR_DATA, text);
}

/* Warnings are of odd but whole files, save those of an early end. */
static void jpeg_message(j_common_ptr c, int level) {
    int code = c->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER))
        give_up(c->client_data, ERR_DATA, "the picture is cut off or damaged");
}

static void jpeg_progress(j_common_ptr c) {
    if (((j_decompress_ptr)c)->input_scan_number > SCANS_MOST)
        give_up(c->client_data, ERR_DATA, "a JPEG of more scans than any picture needs");
}

static void png_exit(png_structp png, png_const_charp message) {
    give_up(png_get_error_ptr(png), strcasestr(message, "out of memory") ? ERR_MEMORY : ERR_DATA, message);
}

static void png_warning_ignore(png_structp png, png_const_charp message) {
    (void)png, (void)message;
}

static void png_more(png_structp png, png_bytep out, size_t n) {
    struct image *im = png_get_io_ptr(png);
    if (n > im->bytes - im->at) png_error(png, "the picture is cut off");
    memcpy(out, im->file + im->at, n);
    im->at += n;
}

/* ---- life ---- */
static void jpeg_begin(struct image *im) {
    jpeg_create_decompress(&im->jpeg);
}

enum error image_create(struct image **out) {
    struct image *im = memory_new(sizeof *im);
    if (!im) return ERR_MEMORY;
    im->path = "JPEG";
    im->jpeg.err = jpeg_std_error(&im->errors);
    im->jpeg.client_data = im;
    im->errors.error_exit = jpeg_exit;
    im->errors.emit_message = jpeg_message;
    enum error err = library_call(im, jpeg_begin);
    if (err != ERR_NONE) {
        memory_free(im);
        return err;
    }
    im->jpeg.client_data = im; /* creating has zeroed all but err */
    im->progress.progress_monitor = jpeg_progress;
    im->jpeg.progress = &im->progress;
    im->jpeg.mem->max_memory_to_use = 1L << 30;
    *out = im;
    return ERR_NONE;
}

static void png_end(struct image *im) {
    if (im->png) png_destroy_read_struct(&im->png, &im->info, NULL);
}

void image_free(struct image *im) {
    if (!im) return;
    png_end(im);
    jpeg_destroy_decompress(&im->jpeg);
    resizer_fini(&im->resizer);
    memory_free(im->file);
    memory_free(im->pixels);
    memory_free(im);
}

static enum error buffer_grow(unsigned char **p, size_t *room, size_t bytes) {
    if (*room >= bytes) return ERR_NONE;
    memory_free(*p);
    *p = NULL;
    *room = 0;
    TRY_MEMORY(*p = memory_new(bytes));
    *room = bytes;
    return ERR_NONE;
}

/* ---- reading ---- */
static enum error file_load(struct image *im) {
    int fd;
    int64_t size;
    TRY(image_file_open(im->path, &fd, &size));
    im->bytes = (size_t)size;
    im->at = 0;
    enum error err = buffer_grow(&im->file, &im->file_room, im->bytes + 1);
    if (err == ERR_NONE) err = file_pread_all(fd, im->file, im->bytes, 0, im->path);
    close(fd);
    return err;
}

static void jpeg_header(struct image *im) {
    jpeg_abort_decompress(&im->jpeg);
    jpeg_mem_src(&im->jpeg, im->file, im->bytes);
    jpeg_read_header(&im->jpeg, TRUE);
    im->width = (int)im->jpeg.image_width;
    im->height = (int)im->jpeg.image_height;
}

static void png_header(struct image *im) {
    enum { CHUNK_MOST = 8 << 20, CHUNKS_MOST = 1000 };
    png_set_user_limits(im->png, IMAGE_SIDE_MOST, IMAGE_SIDE_MOST);
    png_set_chunk_malloc_max(im->png, CHUNK_MOST);
    png_set_chunk_cache_max(im->png, CHUNKS_MOST);
    png_set_read_fn(im->png, im, png_more);
    png_read_info(im->png, im->info);
    im->width = (int)png_get_image_width(im->png, im->info);
    im->height = (int)png_get_image_height(im->png, im->info);
}

static enum error png_open(struct image *im) {
    png_end(im);
    im->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, im, png_exit, png_warning_ignore);
    im->info = im->png ? png_create_info_struct(im->png) : NULL;
    if (!im->info) return FAIL(ERR_MEMORY, "%s: no memory to decode it", im->path);
    return library_call(im, png_header);
}

enum error image_read(struct image *im, const char *path, int *width, int *height) {
    im->path = path;
    im->width = im->height = 0;
    TRY(file_load(im));
    bool jpeg = im->bytes >= 2 && im->file[0] == 0xff && im->file[1] == 0xd8;
    im->format = webp_is(im->file, im->bytes) ? WEBP : jpeg ? JPEG : PNG;
    if (im->format == PNG && (im->bytes < sizeof png_begin || memcmp(im->file, png_begin, sizeof png_begin) != 0))
        return FAIL(ERR_DATA, "%s: " NO_PICTURE, path);
    if (im->format == WEBP)
        TRY(webp_probe(path, im->file, im->bytes, &im->width, &im->height));
    else
        TRY(im->format == PNG ? png_open(im) : library_call(im, jpeg_header));
    TRY(image_check_size(path, im->width, im->height));
    *width = im->width;
    *height = im->height;
    return ERR_NONE;
}

/* ---- decoding ---- */
static void jpeg_begin_rows(struct image *im) {
    bool cmyk = im->jpeg.jpeg_color_space == JCS_CMYK || im->jpeg.jpeg_color_space == JCS_YCCK;
    im->jpeg.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    im->jpeg.scale_num = (unsigned)im->scale;
    im->jpeg.scale_denom = 8;
    jpeg_start_decompress(&im->jpeg);
    im->components = im->jpeg.output_components;
}

/* Rows lie as wide as the whole picture's. Of rows before the first, and of columns that are left out, libjpeg-turbo reads
 * no more than the codes, which finds damage in them; nothing is read of rows after the last. */
static void jpeg_rows(struct image *im) {
    struct jpeg_decompress_struct *j = &im->jpeg;
    size_t pixel = (size_t)im->components, stride = (size_t)j->output_width * pixel;
    JDIMENSION left = 0;
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
    JDIMENSION from = (JDIMENSION)im->left, width = (JDIMENSION)(im->right - im->left);
    if (j->max_h_samp_factor <= 2 && j->max_v_samp_factor <= 2) /* versions before 3.0 err at 4 */
        jpeg_crop_scanline(j, &from, &width), left = from;
    jpeg_skip_scanlines(j, (JDIMENSION)im->first);
#endif
    for (im->row = (int)j->output_scanline; im->row < im->last; im->row++) {
        int kept = im->row > im->first ? im->row - im->first : 0;
        JSAMPROW out = im->pixels + (size_t)kept * stride + left * pixel;
        jpeg_read_scanlines(j, &out, 1);
    }
    jpeg_abort_decompress(j);
}

/* Adobe's programs store CMYK upside down, and nobody else stores it. */
static void cmyk_convert(unsigned char *p, size_t pixels) {
    unsigned char *out = p;
    for (size_t i = 0; i < pixels; i++, p += 4, out += 3)
        for (int c = 0; c < 3; c++) out[c] = (unsigned char)(p[c] * p[3] / 255);
}

/* The least eighths that leave the box as large as is wanted. Only those for which the library has
 * fast code. */
static int scale_choose(const struct view *v) {
    double side = v->box.w < v->box.h ? v->box.w : v->box.h;
    int scale = 8;
    while (v->by == RESAMPLE_ENGINE && scale > 1 && side * (scale / 2) / 8 >= v->size) scale /= 2;
    return scale;
}

static enum error view_make(struct image *im, int width, int height, struct view *v, unsigned char *out) {
    if (v->by == RESAMPLE_TORCHVISION) return picture_resize_exactly(&im->resizer, im->pixels, width, v, out);
    return picture_resize(&im->resizer, im->pixels, width, height, v, out);
}

static enum error jpeg_decode(struct image *im, struct view *v, unsigned char *out) {
    struct box box = v->box;
    im->scale = scale_choose(v);
    TRY(library_call(im, jpeg_begin_rows));
    int width = (int)im->jpeg.output_width, height = (int)im->jpeg.output_height;
    double x = (double)width / im->width, y = (double)height / im->height;
    box = (struct box){box.x * x, box.y * y, box.w * x, box.h * y};
    im->first = (int)box.y;
    im->last = box.y + box.h < height ? (int)(box.y + box.h) + 1 : height;
    im->left = box.x > BORDER ? (int)box.x - BORDER : 0;
    im->right = box.x + box.w + BORDER < width ? (int)(box.x + box.w) + BORDER : width;
    size_t pixels = (size_t)(im->last - im->first) * (size_t)width;
    TRY(buffer_grow(&im->pixels, &im->pixels_room, pixels * (size_t)im->components));
    TRY(library_call(im, jpeg_rows));
    if (im->components == 4) cmyk_convert(im->pixels, pixels);
    box.y -= im->first;
    if (box.y + box.h > im->last - im->first) box.h = im->last - im->first - box.y;
    v->box = box;
    return view_make(im, width, im->last - im->first, v, out);
}

static void png_begin_rows(struct image *im) {
    png_set_expand(im->png);
    png_set_strip_16(im->png);
    png_set_strip_alpha(im->png);
    png_set_gray_to_rgb(im->png);
    im->last = png_set_interlace_handling(im->png);
    png_read_update_info(im->png, im->info);
    if (png_get_rowbytes(im->png, im->info) != (size_t)im->width * 3)
        png_error(im->png, "a PNG of a kind that is not read");
}

static void png_rows(struct image *im) {
    for (im->first = 0; im->first < im->last; im->first++)
        for (im->row = 0; im->row < im->height; im->row++)
            png_read_row(im->png, im->pixels + (size_t)im->row * (size_t)im->width * 3, NULL);
}

static enum error png_decode(struct image *im, struct view *v, unsigned char *out) {
    TRY(library_call(im, png_begin_rows));
    TRY(buffer_grow(&im->pixels, &im->pixels_room, (size_t)im->width * (size_t)im->height * 3));
    TRY(library_call(im, png_rows));
    png_end(im);
    return view_make(im, im->width, im->height, v, out);
}

static enum error webp_decode_whole(struct image *im, struct view *v, unsigned char *out) {
    TRY(buffer_grow(&im->pixels, &im->pixels_room, (size_t)im->width * (size_t)im->height * 3));
    TRY(webp_decode(im->path, im->file, im->bytes, im->width, im->height, im->pixels));
    return view_make(im, im->width, im->height, v, out);
}

enum error image_decode(struct image *im, const struct view *v, unsigned char *out) {
    struct view of = *v;
    if (im->format == WEBP) return webp_decode_whole(im, &of, out);
    return im->format == PNG ? png_decode(im, &of, out) : jpeg_decode(im, &of, out);
}
