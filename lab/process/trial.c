#include "lab/process/trial.h"

#include "engine/base/file.h"
#include "engine/settings/run_config.h"
#include "lab/process/process.h"

#include <string.h>

enum error trial_run(const struct trial *t, struct pool *pool, struct run_result *out) {
    const char *dir = t->settings->config.log.dir;
    char *text = tree_write(t->settings->tree, false, pool), *path = pool_printf(pool, "%s.yaml", dir);
    char *log = pool_printf(pool, "%s.log", dir);
    if (!text || !path || !log) return ERR_MEMORY;
    TRY(file_replace(path, text, strlen(text)));
    const char *args[] = {"run", path, "--json", "--quiet", NULL};
    const struct process p = {t->program, args, NULL, "/dev/null", log};
    TRY(process_engine(&p, t->limit, pool));
    return run_result_read(dir, pool, out);
}
