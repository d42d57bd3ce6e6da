/* tb/events.out.tfevents.*, as TensorBoard reads it: records (length, its masked crc32c, data, its
 * masked crc32c), each the protobuf message Event. Of the messages only these fields are needed:
 *
 *   Event       1 wall_time double, 2 step, 3 file_version, 5 summary, 7 session_log
 *   Summary     1 value, each: 1 tag, 2 simple_value float, 8 tensor, 9 metadata
 *   metadata    1 plugin_data: 1 plugin_name; 4 data_class
 *   tensor      1 dtype, 2 shape; 8 string_val
 *   SessionLog  1 status
 *
 * Every process begins a file. Files are read in the order of their names, so a name's time is
 * later than that of those which are there; and each begins by saying from which step on what was
 * written before holds no more. */
#include "engine/tell/tell.h"

#include "engine/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "events.out.tfevents."
enum { EVENT_WALL = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, CLASS_TENSOR = 2, PLUGIN_NAME = 1 };
enum { TENSOR_TYPE = 1, TYPE_STRING = 7, TENSOR_SHAPE = 2 };
enum { TENSOR_STRINGS = 8, SESSION_STATUS = 1, STATUS_START = 1 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct tensorboard {
    struct sink_file file;
    uint8_t *data; /* of the event that is being made; kept from one to the next */
    size_t n, room;
    bool failed; /* no memory */
};

/* ---- protobuf ---- */

static uint8_t *buffer_grow(struct tensorboard *t, size_t n) {
    if (t->room - t->n < n) {
        size_t room = 2 * (t->room + n);
        uint8_t *more = realloc(t->data, room);
        t->failed |= !more;
        if (!more) return NULL;
        t->data = more, t->room = room;
    }
    return t->data + t->n;
}

static void put_bytes(struct tensorboard *t, const void *bytes, size_t n) {
    uint8_t *to = buffer_grow(t, n);
    if (!to) return;
    memcpy(to, bytes, n);
    t->n += n;
}

static size_t varint_encode(uint64_t v, uint8_t out[10]) {
    size_t n = 0;
    for (; v > 127; v >>= 7) out[n++] = (uint8_t)(v | 128);
    out[n++] = (uint8_t)v;
    return n;
}

static void put_varint(struct tensorboard *t, uint64_t v) {
    uint8_t bytes[10];
    put_bytes(t, bytes, varint_encode(v, bytes));
}

static void put_key(struct tensorboard *t, int field, int wire) {
    put_varint(t, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_fixed(struct tensorboard *t, uint64_t v, int n) {
    uint8_t bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (uint8_t)(v >> 8 * i);
    put_bytes(t, bytes, (size_t)n);
}

static void put_int(struct tensorboard *t, int field, int64_t v) {
    put_key(t, field, WIRE_VARINT);
    put_varint(t, (uint64_t)v);
}

static void put_text(struct tensorboard *t, int field, const char *text) {
    put_key(t, field, WIRE_BYTES);
    put_varint(t, strlen(text));
    put_bytes(t, text, strlen(text));
}

/* What follows until 'close' is the field's message; its length is put before it then. */
static size_t open_message(struct tensorboard *t, int field) {
    put_key(t, field, WIRE_BYTES);
    return t->n;
}

static void close_message(struct tensorboard *t, size_t begin) {
    uint8_t length[10];
    size_t n = t->n - begin, k = varint_encode(n, length);
    if (!buffer_grow(t, k)) return;
    memmove(t->data + begin + k, t->data + begin, n);
    memcpy(t->data + begin, length, k);
    t->n += k;
}

/* ---- events ---- */

static void begin_event(struct tensorboard *t, int64_t step) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    t->n = 0;
    put_key(t, EVENT_WALL, WIRE_64);
    put_fixed(t, bits, 8);
    put_int(t, EVENT_STEP, step);
}

static void put_scalar(struct tensorboard *t, const char *tag, double v) {
    float value = (float)v;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    size_t at = open_message(t, SUMMARY_VALUE);
    put_text(t, VALUE_TAG, tag);
    put_key(t, VALUE_SIMPLE, WIRE_32);
    put_fixed(t, bits, 4);
    close_message(t, at);
}

static uint32_t crc_masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void write_fixed(FILE *f, uint64_t v, int n) {
    for (int i = 0; i < n; i++) putc_unlocked((int)(v >> 8 * i & 255), f);
}

static enum error end_event(struct tensorboard *t) {
    uint8_t length[8];
    FILE *f = t->file.f;
    if (t->failed) return FAIL(ERR_MEMORY, "no memory for events in tb");
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)t->n >> 8 * i);
    fwrite(length, 1, sizeof length, f);
    write_fixed(f, crc_masked(crc32c(0, length, sizeof length)), 4);
    fwrite(t->data, 1, t->n, f);
    write_fixed(f, crc_masked(crc32c(0, t->data, t->n)), 4);
    return sink_file_check(&t->file);
}

/* ---- what a file begins with ---- */

/* Steps after 'step' that earlier files have did not happen: TensorBoard forgets them. */
static enum error put_beginning(struct tensorboard *t, int64_t step) {
    begin_event(t, 0);
    put_text(t, EVENT_VERSION, "brain.Event:2");
    TRY(end_event(t));
    begin_event(t, step + 1);
    size_t session = open_message(t, EVENT_SESSION);
    put_int(t, SESSION_STATUS, STATUS_START);
    close_message(t, session);
    return end_event(t);
}

/* Four spaces before a line make it a listing in Markdown. */
static void put_listing(struct tensorboard *t, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        n += text[n] == '\n';
        put_bytes(t, "    ", 4);
        put_bytes(t, text, n);
        text += n;
    }
}

/* The configuration, where TensorBoard shows texts. */
static enum error put_settings(struct tensorboard *t, const struct sink_place *p) {
    struct pool *pool;
    TRY(pool_create(&pool));
    const char *text = tree_write(p->settings, false, pool);
    begin_event(t, p->step);
    size_t summary = open_message(t, EVENT_SUMMARY), value = open_message(t, SUMMARY_VALUE);
    put_text(t, VALUE_TAG, "config");
    size_t metadata = open_message(t, VALUE_METADATA), plugin = open_message(t, METADATA_PLUGIN);
    put_text(t, PLUGIN_NAME, "text");
    close_message(t, plugin);
    put_int(t, METADATA_CLASS, CLASS_TENSOR);
    close_message(t, metadata);
    size_t tensor = open_message(t, VALUE_TENSOR);
    put_int(t, TENSOR_TYPE, TYPE_STRING);
    close_message(t, open_message(t, TENSOR_SHAPE)); /* of no dimensions: one text */
    size_t strings = open_message(t, TENSOR_STRINGS);
    put_listing(t, text ? text : "");
    close_message(t, strings);
    close_message(t, tensor);
    close_message(t, value);
    close_message(t, summary);
    pool_free(pool);
    return end_event(t);
}

/* ---- the sink ---- */

static void tensorboard_close(void *sink) {
    struct tensorboard *t = sink;
    sink_file_close(&t->file);
    free(t->data);
    free(t);
}

/* A time for the file's name: now, or later than all others'. */
static long long time_of_name(const char *folder) {
    long long when = (long long)time(NULL);
    size_t prefix = strlen(PREFIX);
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        long long other = strncmp(e->d_name, PREFIX, prefix) ? 0 : atoll(e->d_name + prefix);
        if (other >= when && other < 9999999999) when = other + 1;
    }
    if (d) closedir(d);
    return when;
}

static enum error make_file(struct tensorboard *t, const char *run_dir) {
    char folder[4096], path[4096 + 128], host[64] = "";
    snprintf(folder, sizeof folder, "%s/tb", run_dir);
    TRY(file_make_folders(folder));
    (void)gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '-';
    snprintf(path, sizeof path, "%s/" PREFIX "%010lld.%s.%ld.0", folder, time_of_name(folder),
             *host ? host : "localhost", (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    t->file.f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!t->file.f) {
        enum error err = FAIL(ERR_CREATE, "cannot create '%s': %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return err;
    }
    t->file.name = "tb/events.out.tfevents";
    setvbuf(t->file.f, t->file.buffer, _IOFBF, sizeof t->file.buffer);
    return ERR_NONE;
}

static enum error tensorboard_open(const struct sink_place *p, void **out) {
    struct tensorboard *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "no memory for events in tb");
    enum error err = make_file(t, p->run_dir);
    if (err == ERR_NONE) err = put_beginning(t, p->step);
    if (err == ERR_NONE) err = put_settings(t, p);
    if (err != ERR_NONE)
        tensorboard_close(t);
    else
        *out = t;
    return err;
}

static enum error tensorboard_step(void *sink, const struct step_record *r) {
    static const char *const phase_tags[PHASES] = {"phase_ms/load", "phase_ms/forward", "phase_ms/backward",
                                                   "phase_ms/comm", "phase_ms/update"};
    struct tensorboard *t = sink;
    begin_event(t, r->step);
    size_t summary = open_message(t, EVENT_SUMMARY);
    put_scalar(t, "loss", (double)r->loss);
    if (!isnan(r->accuracy)) put_scalar(t, "accuracy", (double)r->accuracy);
    put_scalar(t, "lr", r->lr);
    if (r->norm != 0) put_scalar(t, "grad_norm", r->norm);
    if (r->ms > 0) put_scalar(t, "samples_per_s", r->samples / r->ms * 1e3);
    put_scalar(t, "step_ms", r->ms);
    for (int i = 0; i < PHASES; i++) put_scalar(t, phase_tags[i], r->phase_ms[i]);
    if (r->loss_scale > 0) put_scalar(t, "loss_scale", r->loss_scale);
    close_message(t, summary);
    return end_event(t);
}

static enum error tensorboard_val(void *sink, int64_t step, const struct val_result *v) {
    struct tensorboard *t = sink;
    begin_event(t, step);
    size_t summary = open_message(t, EVENT_SUMMARY);
#define TAG(key, ...) "val/" #key,
    static const char *const tags[VAL_METRICS] = {VAL_METRICS_LIST(TAG)};
#undef TAG
    for (int i = 0; i < VAL_METRICS; i++)
        if (i == VAL_AT_loss || !isnan(v->of[i])) put_scalar(t, tags[i], v->of[i]);
    close_message(t, summary);
    return end_event(t);
}

static enum error tensorboard_flush(void *sink, bool settled) {
    struct tensorboard *t = sink;
    (void)settled;
    return sink_file_flush(&t->file);
}

const struct sink_ops sink_tensorboard = {.name = "tensorboard",
                                          .open = tensorboard_open,
                                          .step = tensorboard_step,
                                          .val = tensorboard_val,
                                          .flush = tensorboard_flush,
                                          .close = tensorboard_close};
