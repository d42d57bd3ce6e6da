#include "engine/model/state.h"

bool state_shape(const struct optim_ops *o, int slot, const struct shape *tensor, struct shape *out) {
    *out = *tensor;
    return !o->state || o->state(slot, out->dim, out->ndim);
}

int64_t state_place(const struct model *m, const struct optim_ops *o, int slot, int64_t at) {
    int64_t place = 0;
    struct shape s;
    for (int i = 0; o->state && i < m->nparams && m->params[i].offset < at; i++)
        if (state_shape(o, slot, &m->params[i].shape, &s)) place += shape_count(&s);
    return o->state ? place : at;
}

double state_each(const struct model *m, const struct config_variant *optimizer) {
    const struct optim_ops *o = optim_of(optimizer);
    int64_t floats = 0;
    if (!o->state) return optim_slots(optimizer);
    for (int i = 0; i < o->nslots; i++) floats += state_place(m, o, i, m->arena_floats);
    return (double)floats / (double)m->parameters;
}
