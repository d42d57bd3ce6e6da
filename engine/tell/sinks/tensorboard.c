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
#include "engine/base/proto.h"

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

struct tensorboard {
    struct sink_file file;
    struct proto event; /* that is being made; its memory is kept from one to the next */
};

/* ---- events ---- */

static void event_begin(struct tensorboard *t, int64_t step) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t->event.n = 0;
    proto_double(&t->event, EVENT_WALL, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    proto_int(&t->event, EVENT_STEP, step);
}

static void event_scalar(struct tensorboard *t, const char *tag, double v) {
    size_t at = proto_open(&t->event, SUMMARY_VALUE);
    proto_text(&t->event, VALUE_TAG, tag);
    proto_float(&t->event, VALUE_SIMPLE, (float)v);
    proto_close(&t->event, at);
}

static uint32_t crc_masked(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static enum error event_end(struct tensorboard *t) {
    const uint64_t length = t->event.n; /* numbers are little-endian, as the machine is */
    if (t->event.failed) return FAIL(ERR_MEMORY, "no memory for events in tb");
    uint32_t check = crc_masked(crc32c(0, &length, sizeof length));
    fwrite(&length, sizeof length, 1, t->file.f);
    fwrite(&check, sizeof check, 1, t->file.f);
    check = crc_masked(crc32c(0, t->event.data, t->event.n));
    fwrite(t->event.data, 1, t->event.n, t->file.f);
    fwrite(&check, sizeof check, 1, t->file.f);
    return sink_file_check(&t->file);
}

/* ---- what a file begins with ---- */

/* Steps after 'step' that earlier files have did not happen: TensorBoard forgets them. */
static enum error event_put_beginning(struct tensorboard *t, int64_t step) {
    event_begin(t, 0);
    proto_text(&t->event, EVENT_VERSION, "brain.Event:2");
    TRY(event_end(t));
    event_begin(t, step + 1);
    size_t session = proto_open(&t->event, EVENT_SESSION);
    proto_int(&t->event, SESSION_STATUS, STATUS_START);
    proto_close(&t->event, session);
    return event_end(t);
}

/* Four spaces before a line make it a listing in Markdown. */
static void event_put_listing(struct tensorboard *t, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        n += text[n] == '\n';
        proto_raw(&t->event, "    ", 4);
        proto_raw(&t->event, text, n);
        text += n;
    }
}

/* The configuration, where TensorBoard shows texts. */
static enum error event_put_settings(struct tensorboard *t, const struct sink_place *p) {
    struct pool *pool;
    TRY(pool_create(&pool));
    const char *text = tree_write(p->settings, false, pool);
    event_begin(t, p->step);
    size_t summary = proto_open(&t->event, EVENT_SUMMARY), value = proto_open(&t->event, SUMMARY_VALUE);
    proto_text(&t->event, VALUE_TAG, "config");
    size_t metadata = proto_open(&t->event, VALUE_METADATA), plugin = proto_open(&t->event, METADATA_PLUGIN);
    proto_text(&t->event, PLUGIN_NAME, "text");
    proto_close(&t->event, plugin);
    proto_int(&t->event, METADATA_CLASS, CLASS_TENSOR);
    proto_close(&t->event, metadata);
    size_t tensor = proto_open(&t->event, VALUE_TENSOR);
    proto_int(&t->event, TENSOR_TYPE, TYPE_STRING);
    proto_bytes(&t->event, TENSOR_SHAPE, "", 0); /* of no dimensions: one text */
    size_t strings = proto_open(&t->event, TENSOR_STRINGS);
    event_put_listing(t, text ? text : "");
    proto_close(&t->event, strings);
    proto_close(&t->event, tensor);
    proto_close(&t->event, value);
    proto_close(&t->event, summary);
    pool_free(pool);
    return event_end(t);
}

/* ---- the sink ---- */

static void tensorboard_close(void *sink) {
    struct tensorboard *t = sink;
    sink_file_close(&t->file);
    free(t->event.data);
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
    if (err == ERR_NONE) err = event_put_beginning(t, p->step);
    if (err == ERR_NONE) err = event_put_settings(t, p);
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
    event_begin(t, r->step);
    size_t summary = proto_open(&t->event, EVENT_SUMMARY);
    event_scalar(t, "loss", (double)r->loss);
    if (!isnan(r->accuracy)) event_scalar(t, "accuracy", (double)r->accuracy);
    event_scalar(t, "lr", r->lr);
    if (r->norm != 0) event_scalar(t, "grad_norm", r->norm);
    if (r->ms > 0) event_scalar(t, "samples_per_s", r->samples / r->ms * 1e3);
    event_scalar(t, "step_ms", r->ms);
    for (int i = 0; i < PHASES; i++) event_scalar(t, phase_tags[i], r->phase_ms[i]);
    if (isfinite(r->noise)) event_scalar(t, "gradient_noise", r->noise);
    if (isfinite(r->noise)) event_scalar(t, "gradient_signal", r->signal);
    if (r->loss_scale > 0) event_scalar(t, "loss_scale", r->loss_scale);
    const struct usage_sample *u = &r->usage;
    if (u->seconds > 0) {
        event_scalar(t, "system/cores", u->cores);
        event_scalar(t, "system/rss_bytes", u->rss_bytes);
        if (!isnan(u->watts)) event_scalar(t, "system/watts", u->watts);
    }
    proto_close(&t->event, summary);
    return event_end(t);
}

static enum error tensorboard_val(void *sink, int64_t step, const struct val_result *v) {
    struct tensorboard *t = sink;
    event_begin(t, step);
    size_t summary = proto_open(&t->event, EVENT_SUMMARY);
#define TAG(key, ...) "val/" #key,
    static const char *const tags[VAL_METRICS] = {VAL_METRICS_LIST(TAG)};
#undef TAG
    for (int i = 0; i < VAL_METRICS; i++)
        if (i == VAL_AT_loss || !isnan(v->of[i])) event_scalar(t, tags[i], v->of[i]);
    proto_close(&t->event, summary);
    return event_end(t);
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
