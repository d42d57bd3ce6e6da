#include "engine/save/run_record.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

struct run_record run_record_read(const char *dir, struct pool *pool) {
    enum { MOST = 4096 };
    const struct json_value *root;
    struct run_record r = {.run_id = "", .job = "", .error = ""};
    char *path = pool_printf(pool, "%s/run.json", dir);
    if (!path || json_read(path, MOST, (struct json_limits){2, 16, MOST}, pool, &root) != ERR_NONE) return r;
    r.run_id = json_text(root, "run_id"), r.job = json_text(root, "job"), r.error = json_text(root, "error");
    (void)json_get_int(root, "restarts", INT64_MAX, &r.restarts);
    (void)json_get_int(root, "exit", 255, &r.code);
    return r;
}

enum error run_record_save(const char *dir, const struct run_record *r, struct pool *pool) {
    struct json j = {0};
    char *path = pool_printf(pool, "%s/run.json", dir);
    if (!path) return ERR_MEMORY;
    json_open(&j, NULL, '{');
    json_string(&j, "run_id", r->run_id);
    if (*r->job) json_string(&j, "job", r->job);
    if (*r->job) json_int(&j, "restarts", r->restarts);
    if (r->code) json_int(&j, "exit", r->code);
    if (r->code && *r->error) json_string(&j, "error", r->error);
    json_close(&j, '}');
    return json_place(&j, ERR_NONE, path);
}
