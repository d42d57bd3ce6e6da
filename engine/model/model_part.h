/* A part of a model: consecutive layers, which one device has while others have those before and after it. Parts are cut
 * where one activation alone passes from the layers before to those after, and never before an activation or a pool, which a
 * device may compute together with the layer before it. What belongs to a part keeps its place in the model's arenas: the
 * part's own parameters are one range, and so are its buffers. A layer may have the weights of a layer of an earlier part
 * (tied): the part borrows these. */
#pragma once
#include "engine/model/model.h"

struct model_part {
    int from, to;       /* its layers: model->nodes[from..to) */
    int input;          /* the node whose output is its input, views looked through; -1: the batch */
    int param, params;  /* its own parameters: model->params[param..params) */
    int64_t begin, end; /* the range of these in the arena; the header is in that of the last part */
    int64_t buffers[2]; /* that of its buffers in theirs */
};
/* The node whose memory this node's output is; -1: the batch. */
int model_root(const struct model *m, int node);
/* Whether a part can begin with this layer; node 0 can. */
bool model_part_begins(const struct model *m, int node);
/* The layers [from, to), at whose ends parts begin. */
struct model_part model_part(const struct model *m, int from, int to);
/* Whether layers [from, to) have this parameter; whether the part does, though it is an earlier part's. */
bool model_uses(const struct model *m, int from, int to, int param);
static inline bool model_part_borrows(const struct model *m, const struct model_part *p, int param) {
    return m->params[param].node < p->from && model_uses(m, p->from, p->to, param);
}
