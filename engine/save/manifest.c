/* The manifest, which makes a folder of files a checkpoint, and the list of such folders. It is a
 * JSON object whose last entry is the crc32c of all the text before that entry: one changed byte
 * anywhere, and it is no manifest. */
#include "engine/base/file.h"
#include "engine/save/checkpoint_impl.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, MANIFEST_MOST = 16 << 20, SUFFIX_BYTES = 22, STEP_DIGITS_MOST = 18 };
static const struct json_limits limits = {.depth = 6, .entries = 1 << 20, .text = MANIFEST_MOST};
const char *const checkpoint_file_names[CHECKPOINT_FILES] = {"model.safetensors", "optim.safetensors",
                                                             "state.safetensors", "ema.safetensors"};

static void manifest_make_suffix(const char *text, size_t n, char out[SUFFIX_BYTES + 1]) {
    snprintf(out, SUFFIX_BYTES + 1, ",\"crc32c\":\"%08x\"}\n", crc32c(0, text, n));
}

static void put_manifest(struct json *j, const struct manifest *m) {
    json_open(j, NULL, '{');
    json_int(j, "format", FORMAT);
    json_int(j, "step", m->step);
    if (*m->run_id) json_string(j, "run_id", m->run_id);
    json_put(j, JSON_TEXT("mode", m->mode), JSON_INT("devices", m->devices), JSON_BOOL("best", m->best));
    if (m->rescued) json_bool(j, "rescued", true);
    if (isfinite(m->loss)) json_real(j, "loss", m->loss);
    if (*m->tuned) json_string(j, "tuned", m->tuned);
    json_array(j, "files", i, CHECKPOINT_FILES) {
        char crc[16];
        if (!m->file[i].bytes) continue;
        snprintf(crc, sizeof crc, "%08x", m->file[i].crc);
        json_object(j, NULL, JSON_TEXT("name", checkpoint_file_names[i]), JSON_INT("size", m->file[i].bytes),
                    JSON_TEXT("crc32c", crc));
    }
    json_string(j, "identity", m->identity);
    if (*m->data) json_string(j, "data", m->data);
    if (m->preprocessing) json_raw(j, "preprocessing", m->preprocessing);
}

enum error manifest_write(const char *folder, const struct manifest *m) {
    struct pool *pool;
    struct json j = {0};
    TRY(pool_create(&pool));
    put_manifest(&j, m);
    char suffix[SUFFIX_BYTES + 1];
    char *text = NULL, *path = pool_printf(pool, "%s/manifest.json", folder);
    enum error err = json_done(&j);
    if (err == ERR_NONE) {
        manifest_make_suffix(j.text, j.length, suffix);
        text = pool_printf(pool, "%s%s", j.text, suffix);
    }
    if (err == ERR_NONE && (!text || !path)) err = ERR_MEMORY;
    if (err == ERR_NONE) err = file_replace(path, text, strlen(text));
    json_fini(&j);
    pool_free(pool);
    return err;
}

static bool manifest_get_files(const struct json_value *files, struct manifest *out) {
    if (!files || files->kind != JSON_ARRAY || files->count < FILE_AVERAGE || files->count > CHECKPOINT_FILES)
        return false;
    memset(out->file, 0, sizeof out->file);
    for (int i = 0; i < files->count; i++) {
        const struct json_value *v = &files->children[i];
        const char *name = json_get_text(v, "name"), *crc = json_get_text(v, "crc32c");
        if (!name || strcmp(name, checkpoint_file_names[i]) != 0) return false;
        if (!crc || strlen(crc) != 8 || !json_get_int(v, "size", INT64_MAX, &out->file[i].bytes)) return false;
        if (!out->file[i].bytes) return false;
        out->file[i].crc = (uint32_t)strtoul(crc, NULL, 16);
    }
    return true;
}

static enum error manifest_parse(const char *path, const char *text, size_t n, struct pool *pool,
                                 struct manifest *out) {
    char suffix[SUFFIX_BYTES + 1];
    const struct json_value *root;
    if (n < SUFFIX_BYTES) return FAIL(ERR_DATA, "'%s' is cut short", path);
    manifest_make_suffix(text, n - SUFFIX_BYTES, suffix);
    if (memcmp(text + n - SUFFIX_BYTES, suffix, SUFFIX_BYTES) != 0)
        return FAIL(ERR_DATA, "'%s' is damaged: its crc32c does not fit its text", path);
    TRY(json_parse(text, n, limits, pool, &root));
    int64_t format, devices;
    if (!json_get_int(root, "format", INT64_MAX, &format)) return FAIL(ERR_DATA, "'%s' is no manifest", path);
    if (format != FORMAT)
        return FAIL(ERR_DATA, "'%s' has format %" PRId64 "; this program reads format %d", path, format, FORMAT);
    const struct json_value *best = json_get(root, "best"), *loss = json_get(root, "loss");
    out->mode = json_get_text(root, "mode");
    out->identity = json_get_text(root, "identity");
    out->run_id = json_get_text(root, "run_id");
    out->data = json_get_text(root, "data");
    if (!out->run_id) out->run_id = "";
    if (!out->data) out->data = "";
    if (!json_get_int(root, "step", INT64_MAX, &out->step) || !json_get_int(root, "devices", INT32_MAX, &devices) ||
        !best || best->kind != JSON_BOOL || !out->mode || !out->identity ||
        !manifest_get_files(json_get(root, "files"), out))
        return FAIL(ERR_DATA, "'%s' lacks a part of a manifest", path);
    out->devices = (int)devices;
    out->best = best->truth;
    out->loss = loss && loss->kind == JSON_NUMBER ? loss->number : (double)NAN;
    out->rescued = json_get(root, "rescued") != NULL;
    out->tuned = json_text(root, "tuned");
    return ERR_NONE;
}

enum error manifest_read(const char *folder, struct pool *pool, struct manifest *out) {
    char *text, *path = pool_printf(pool, "%s/manifest.json", folder);
    size_t n;
    if (!path) return ERR_MEMORY;
    TRY(file_read(path, MANIFEST_MOST, pool, &text, &n));
    return manifest_parse(path, text, n, pool, out);
}

/* ---- the folders ---- */

char *step_path(const char *folder, int64_t step, struct pool *pool) {
    return pool_printf(pool, "%s/step-%09" PRId64, folder, step);
}

/* "step-" and at least nine digits, as step_path writes it; -1 for other names. */
static int64_t step_of_name(const char *name) {
    if (strncmp(name, "step-", 5) != 0) return -1;
    size_t digits = strspn(name + 5, "0123456789");
    if (digits < 9 || digits > STEP_DIGITS_MOST || name[5 + digits]) return -1;
    return strtoll(name + 5, NULL, 10);
}

static int steps_newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* Appends, doubling the room; false: out of memory. */
static bool steps_append(struct step_list *list, int *room, int64_t step, struct pool *pool) {
    if (list->count == *room) {
        *room = *room ? *room * 2 : 16;
        int64_t *more = pool_alloc(pool, (size_t)*room * sizeof *more);
        if (!more) return false;
        if (list->count) memcpy(more, list->step, (size_t)list->count * sizeof *more);
        list->step = more;
    }
    list->step[list->count++] = step;
    return true;
}

enum error step_list_read(const char *folder, struct pool *pool, struct step_list *out) {
    int room = 0;
    bool fits = true;
    *out = (struct step_list){0};
    DIR *dir = opendir(folder);
    if (!dir)
        return FAIL(errno == ENOENT ? ERR_INPUT : ERR_IO, "cannot open the folder '%s': %s", folder, strerror(errno));
    for (struct dirent *e; fits && (e = readdir(dir));) {
        int64_t step = step_of_name(e->d_name);
        if (step >= 0) fits = steps_append(out, &room, step, pool);
    }
    closedir(dir);
    if (!fits) return ERR_MEMORY;
    if (out->count) qsort(out->step, (size_t)out->count, sizeof *out->step, steps_newest_first);
    return ERR_NONE;
}
