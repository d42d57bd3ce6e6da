/* The file: a header, then records, each with a head of its own checksum. So a file that ends in
 * the middle of a record, as a killed writer leaves it, can be told from a damaged one: there the
 * head is whole but wrong, or the checksum of what follows it is. */
#include "transport/store/file_log.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'E', 'N', 'G', 'S', 'T', 'O', 'R', '1'};

struct log_record {
    uint32_t head_crc, crc; /* of the rest of the head; of key and value */
    uint32_t key, value;    /* bytes of both; value GONE: the key was deleted */
};
enum { RECORD_MAX = sizeof(struct log_record) + STORE_KEY_MAX + STORE_VALUE_MAX };
static const uint32_t GONE = UINT32_MAX;
_Static_assert(sizeof(struct log_header) == 408, "the header has no holes");

static enum error fail_io(const char *what, const char *path) {
    return FAIL(ERR_IO, "cannot %s the store '%s': %s", what, path, strerror(errno));
}

static enum error size_of(int fd, const char *path, off_t *size) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fail_io("look at", path);
    *size = st.st_size;
    return ERR_NONE;
}

/* ---- header ---- */

static uint32_t header_crc(const struct log_header *h) {
    return crc32c(0, h, offsetof(struct log_header, crc));
}

enum error log_read_header(int fd, const char *path, struct log_header *h, enum log_state *state) {
    off_t size;
    TRY(size_of(fd, path, &size));
    size_t n = size < LOG_START ? (size_t)size : LOG_START;
    TRY(file_pread_all(fd, h, n, 0, path));
    if (memcmp(h->magic, magic, n < sizeof magic ? n : sizeof magic))
        return FAIL(ERR_DATA, "'%s' is not a store of this program\nname another file", path);
    *state = n < LOG_START ? LOG_EMPTY : LOG_WHOLE;
    if (n < LOG_START) return ERR_NONE;
    if (h->crc != header_crc(h) || h->run[STORE_KEY_MAX] || h->who[sizeof h->who - 1])
        return FAIL(ERR_DATA, "the store '%s' is damaged at its beginning\nremove it", path);
    return ERR_NONE;
}

enum error log_begin(int fd, const char *path, const char *run, const char *who, struct log_header *h) {
    *h = (struct log_header){0};
    memcpy(h->magic, magic, sizeof magic);
    if (getrandom(&h->life, sizeof h->life, 0) != (ssize_t)sizeof h->life)
        return FAIL(ERR_IO, "no random numbers: %s", strerror(errno));
    memcpy(h->run, run, strnlen(run, STORE_KEY_MAX));
    memcpy(h->who, who, strnlen(who, sizeof h->who - 1));
    h->crc = header_crc(h);
    if (ftruncate(fd, 0) != 0) return fail_io("empty", path);
    if (lseek(fd, 0, SEEK_SET) < 0) return fail_io("begin", path);
    return file_write_all(fd, h, sizeof *h, path);
}

/* ---- reading ---- */

static uint32_t head_crc(const struct log_record *r) {
    return crc32c(0, &r->crc, sizeof *r - sizeof r->head_crc);
}

static size_t value_bytes(const struct log_record *r) {
    return r->value == GONE ? 0 : r->value;
}

static bool head_ok(const struct log_record *r) {
    return r->head_crc == head_crc(r) && r->key <= STORE_KEY_MAX && value_bytes(r) <= STORE_VALUE_MAX;
}

static enum error log_damaged(const char *path, off_t at) {
    return FAIL(ERR_DATA, "the store '%s' is damaged at byte %lld\nremove it", path, (long long)at);
}

/* The record at 'at' into the buffer; *n is 0 when it is not whole. */
static enum error read_record(int fd, const char *path, off_t at, off_t size, char *buffer, size_t *n) {
    struct log_record r;
    *n = 0;
    if (size - at < (off_t)sizeof r) return ERR_NONE;
    TRY(file_pread_all(fd, &r, sizeof r, at, path));
    if (!head_ok(&r)) return log_damaged(path, at);
    size_t bytes = r.key + value_bytes(&r);
    if ((size_t)(size - at) < sizeof r + bytes) return ERR_NONE;
    memcpy(buffer, &r, sizeof r);
    TRY(file_pread_all(fd, buffer + sizeof r, bytes, at + (off_t)sizeof r, path));
    if (crc32c(0, buffer + sizeof r, bytes) != r.crc) return log_damaged(path, at);
    *n = sizeof r + bytes;
    return ERR_NONE;
}

static enum error record_apply(const char *buffer, struct store_table *t, const char *path, off_t at) {
    struct log_record r;
    char key[STORE_KEY_MAX + 1] = {0};
    memcpy(&r, buffer, sizeof r);
    memcpy(key, buffer + sizeof r, r.key);
    if (!store_key_ok(key, r.key, false)) return log_damaged(path, at);
    struct bytes value = {r.value == GONE ? NULL : buffer + sizeof r + r.key, value_bytes(&r)};
    enum answer_status status = table_put(t, key, value);
    if (status == ANSWER_FULL) return log_damaged(path, at);
    return status ? FAIL(ERR_MEMORY, "no memory for the store '%s'", path) : ERR_NONE;
}

static enum error records_replay(int fd, const char *path, off_t size, char *buffer, struct store_table *t,
                                 off_t *end) {
    while (*end < size) {
        size_t n;
        TRY(read_record(fd, path, *end, size, buffer, &n));
        if (n == 0) return ftruncate(fd, *end) == 0 ? ERR_NONE : fail_io("cut", path);
        TRY(record_apply(buffer, t, path, *end));
        *end += (off_t)n;
    }
    return ERR_NONE;
}

enum error log_replay(int fd, const char *path, struct store_table *t, off_t *end) {
    off_t size;
    TRY(size_of(fd, path, &size));
    if (size == *end) return ERR_NONE;
    if (size < *end)
        return FAIL(ERR_DATA, "the store '%s' was cut from %lld to %lld bytes while it was open", path, (long long)*end,
                    (long long)size);
    char *buffer = malloc(RECORD_MAX);
    if (!buffer) return FAIL(ERR_MEMORY, "no memory to read the store '%s'", path);
    enum error err = records_replay(fd, path, size, buffer, t, end);
    free(buffer);
    return err;
}

/* ---- writing ---- */

static enum error write_record(int fd, const char *path, const struct log_record *r, const char *key,
                               struct bytes value, off_t at) {
    if (lseek(fd, at, SEEK_SET) < 0) return fail_io("write", path);
    TRY(file_write_all(fd, r, sizeof *r, path));
    TRY(file_write_all(fd, key, r->key, path));
    return file_write_all(fd, value.at, value_bytes(r), path);
}

enum error log_append(int fd, const char *path, const char *key, struct bytes value, off_t *end) {
    struct log_record r = {.key = (uint32_t)strlen(key), .value = value.at ? (uint32_t)value.n : GONE};
    r.crc = crc32c(crc32c(0, key, r.key), value.at, value_bytes(&r));
    r.head_crc = head_crc(&r);
    enum error err = write_record(fd, path, &r, key, value, *end);
    if (err) { /* a full disk; should this fail too, the next reader cuts it off */
        (void)!ftruncate(fd, *end);
        return err;
    }
    *end += (off_t)(sizeof r + r.key + value_bytes(&r));
    return ERR_NONE;
}
