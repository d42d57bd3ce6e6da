#include "engine/save/checkpoint_impl.h"
#include "engine/save/run_record.h"

#include <string.h>

enum error checkpoint_best(const char *run_dir, const char *run_id, struct pool *pool, struct checkpoint_place *out) {
    struct step_list list;
    const char *folder = pool_printf(pool, "%s/ckpt", run_dir);
    *out = (struct checkpoint_place){NULL, -1};
    if (!folder) return ERR_MEMORY;
    if (!run_id) run_id = run_record_read(run_dir, pool).run_id;
    TRY(step_list_read(folder, pool, &list));
    for (int i = 0; i < list.count && !out->path; i++) {
        struct manifest m;
        char *path = step_path(folder, list.step[i], pool);
        if (!path) return ERR_MEMORY;
        if (manifest_read(path, pool, &m) != ERR_NONE || !m.best) continue;
        if (!strcmp(m.run_id, run_id)) *out = (struct checkpoint_place){path, list.step[i]};
    }
    return ERR_NONE;
}
