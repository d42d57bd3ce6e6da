/* Which of the model's tensors have separate keys, and which stay as they are: optimizer.groups and .freeze. */
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"

static enum error tensors_match(struct trainer *t, struct config_errors *errors) {
    const struct model *m = t->model;
    const struct optim_groups *groups = &t->config->optimizer.groups;
    int before = config_errors_count(errors);
    const char **names = pool_alloc(m->pool, (size_t)(m->nparams + 1) * sizeof *names);
    if (!names) return ERR_MEMORY;
    for (int i = 0; i < m->nparams; i++) names[i] = m->params[i].name;
    optim_groups_match(groups, names, m->nparams, t->tensors.group, t->tensors.frozen, errors);
    if (config_errors_count(errors) == before) return ERR_NONE;
    return FAIL(ERR_CONFIG, "model '%s' has not the tensors that the optimizer's groups or freeze name", m->name);
}

enum error tensors_choose(struct trainer *t, struct config_errors *errors) {
    struct tensors *s = &t->tensors;
    const struct model *m = t->model;
    const struct optim_groups *groups = &t->config->optimizer.groups;
    s->trained = m->parameters;
    s->upto = m->arena_floats;
    s->group = pool_alloc(m->pool, (size_t)(m->nparams + 1) * sizeof *s->group);
    s->frozen = pool_alloc(m->pool, (size_t)(m->nparams + 1) * sizeof *s->frozen);
    if (!s->group || !s->frozen) return ERR_MEMORY;
    if (t->job->task == JOB_TRAIN) TRY(tensors_match(t, errors));
    for (int i = 0; i < m->nparams; i++) s->trained -= s->frozen[i] ? m->params[i].count : 0;
    int last = m->nparams - 1;
    while (s->frozen[last]) s->upto = m->params[last--].offset;
    if (!groups->frozen.count) s->frozen = NULL;
    return ERR_NONE;
}
