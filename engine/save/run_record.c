#include "engine/save/run_record.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

struct run_record run_record_read(const char *dir, struct pool *pool) {
    enum { MOST = 4096 };
    const struct json_value *root;
    struct run_record r = {.run_id = "", .job = "", .error = ""};
    char *text, *path = pool_printf(pool, "%s/run.json", dir);
    size_t n;
    if (!path || file_read(path, MOST, pool, &text, &n) != ERR_NONE ||
        json_parse(text, n, (struct json_limits){2, 16, MOST}, pool, &root) != ERR_NONE)
        return r;
    const char *run_id = json_get_text(root, "run_id"), *job = json_get_text(root, "job");
    const char *error = json_get_text(root, "error");
    if (run_id) r.run_id = run_id;
    if (job) r.job = job;
    if (error) r.error = error;
    (void)json_get_int(root, "restarts", INT64_MAX, &r.restarts);
    (void)json_get_int(root, "exit", 255, &r.code);
    return r;
}

enum error run_record_save(const char *dir, const struct run_record *r, struct pool *pool) {
    struct json j;
    char *path = pool_printf(pool, "%s/run.json", dir);
    if (!path) return ERR_MEMORY;
    json_init(&j);
    json_open(&j, NULL, '{');
    json_string(&j, "run_id", r->run_id);
    if (*r->job) json_string(&j, "job", r->job);
    if (*r->job) json_int(&j, "restarts", r->restarts);
    if (r->code) json_int(&j, "exit", r->code);
    if (r->code && *r->error) json_string(&j, "error", r->error);
    json_close(&j, '}');
    enum error err = json_done(&j);
    if (err == ERR_NONE) err = file_replace(path, j.text, j.length);
    json_fini(&j);
    return err;
}
