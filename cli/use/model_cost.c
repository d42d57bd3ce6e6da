/* engine model summary --device: what a step should take on a GPU that need not be there. Each op of the plan takes the
 * longer of two times: its operations at the GPU's rate for products of that precision, or the bytes that it reads and
 * writes, each once, at the rate of its memory. To this comes the launch of a kernel, and of one for each pass that adds to
 * a gradient. These are bounds, which good kernels come near to: what a measurement is to be compared with. */
#include "cli/use/model.h"

#include "engine/base/json.h"
#include "engine/base/text.h"
#include "engine/model/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Without sparsity, bf16 and fp16 with sums in f32, as NVIDIA states them: its data sheets of the H100, the H200, the A100
 * and the L4, of whose rates with sparsity these are half; its white paper on the Ada architecture for the RTX 4090; its
 * data sheet of the HGX B200, of whose eight GPUs this is one. */
static const struct known_gpu {
    const char *name, *title;
    double products[4]; /* by enum precision, in TFLOP/s */
    double memory;      /* GB/s */
} known[] = {
    {"h100",
     "NVIDIA H100 SXM",
     {[PRECISION_F32] = 67, [PRECISION_TF32] = 494.7, [PRECISION_BF16] = 989.4, [PRECISION_FP16] = 989.4},
     3350},
    {"h200",
     "NVIDIA H200",
     {[PRECISION_F32] = 67, [PRECISION_TF32] = 494.7, [PRECISION_BF16] = 989.4, [PRECISION_FP16] = 989.4},
     4800},
    {"a100",
     "NVIDIA A100 SXM 80 GB",
     {[PRECISION_F32] = 19.5, [PRECISION_TF32] = 156, [PRECISION_BF16] = 312, [PRECISION_FP16] = 312},
     2039},
    {"l4",
     "NVIDIA L4",
     {[PRECISION_F32] = 30.3, [PRECISION_TF32] = 60, [PRECISION_BF16] = 121, [PRECISION_FP16] = 121},
     300},
    {"4090",
     "NVIDIA GeForce RTX 4090",
     {[PRECISION_F32] = 82.6, [PRECISION_TF32] = 82.6, [PRECISION_BF16] = 165.2, [PRECISION_FP16] = 165.2},
     1008},
    {"b200",
     "NVIDIA B200",
     {[PRECISION_F32] = 75, [PRECISION_TF32] = 1125, [PRECISION_BF16] = 2250, [PRECISION_FP16] = 2250},
     7700},
};
enum { KNOWN = sizeof known / sizeof *known };
static const double launch_ms = 0.003;

const char *model_gpu_name(int i) {
    return i < KNOWN ? known[i].name : NULL;
}

static const struct known_gpu *gpu_of(const char *name) {
    for (int i = 0; i < KNOWN; i++)
        if (!strcmp(known[i].name, name)) return &known[i];
    return NULL;
}

struct cost { /* of one pass of an op, or of the update */
    double flops, bytes, ms;
    int launches; /* of kernels, at least */
    bool compute; /* the operations take longer than the bytes */
};
struct cost_page {
    const struct model_view *v;
    const struct known_gpu *gpu;
    double rate; /* of products, in FLOP/s */
    double unit; /* bytes of an activation there */
    int passes;  /* of a step */
};

static struct cost cost_of(const struct cost_page *p, double flops, double bytes, int launches) {
    double by_flops = flops / p->rate * 1e3, by_bytes = bytes / (p->gpu->memory * 1e9) * 1e3;
    return (struct cost){flops, bytes, fmax(by_flops, by_bytes) + launches * launch_ms, launches, by_flops > by_bytes};
}

/* A loss is one kernel, which reads x and writes its gradient. */
static struct cost loss_cost(const struct cost_page *p, const struct plan_step *s, bool backward) {
    double x = (double)(p->v->network.plan->n * shape_count(&s->desc.x)) * p->unit;
    return backward ? (struct cost){0} : cost_of(p, 0, 2 * x, 1);
}

static struct cost step_cost(const struct cost_page *p, const struct plan_step *s, bool backward) {
    double bytes[2];
    int adds = 0;
    if (s->node == NODE_LOSS) return loss_cost(p, s, backward);
    plan_step_bytes(p->v->network.model, s, p->v->network.plan->n, p->unit, bytes);
    if (bytes[backward] <= 0) return (struct cost){0};
    for (int i = 0; i < s->ninputs && backward; i++) adds += s->add[i];
    return cost_of(p, op_flops(&s->desc, backward) * (double)p->v->network.plan->n, bytes[backward], 1 + adds);
}

/* Weights are read and written, gradients read, each slot of the optimizer read and written. Before that each further pass's
 * gradients are added to those before, and all are read once more for their norm; after it weights are rounded to the
 * type of activations. */
static struct cost update_cost(const struct cost_page *p) {
    const struct run_config *c = &p->v->settings.config;
    bool rounds = p->unit == 2, measures = c->precision == PRECISION_FP16 || c->optimizer.clip > 0;
    double each = 3 + 2 * state_each(p->v->network.model, &c->optimizer.kind) + 3 * (p->passes - 1) + measures;
    double bytes = (each + 1.5 * rounds) * sizeof(float) * (double)p->v->network.model->parameters;
    return cost_of(p, 0, bytes, p->passes + measures + rounds);
}

static const char *step_name(const struct cost_page *p, const struct plan_step *s) {
    return s->node == NODE_LOSS ? "loss" : p->v->network.model->nodes[s->node].name;
}

static struct cost_page page_of(const struct model_view *v, const char *gpu) {
    const struct run_config *c = &v->settings.config;
    bool half = c->precision == PRECISION_BF16 || c->precision == PRECISION_FP16;
    struct cost_page p = {.v = v, .gpu = gpu_of(gpu), .unit = half ? 2 : 4, .passes = v->whole ? planned_passes(c) : 1};
    p.rate = p.gpu->products[c->precision] * 1e12;
    return p;
}

static void cost_add(struct cost *sum, const struct cost *c) {
    sum->flops += c->flops;
    sum->bytes += c->bytes;
    sum->ms += c->ms;
    sum->launches += c->launches;
}

/* ---- for people --------------------------------------------------------------------------- */
static void cost_print(const struct cost *c, const char *bound) {
    char bytes[32];
    printf("  %9.3f %10s  %-7s %8.4f", c->flops / 1e9, text_of_bytes(c->bytes, bytes), bound, c->ms);
}

static const char *bound_of(const struct cost *c) {
    return c->compute ? "compute" : "memory";
}

void model_cost_print(const struct model_view *v, const char *gpu) {
    const struct cost_page p = page_of(v, gpu);
    const struct plan *plan = v->network.plan;
    struct cost all[2] = {{0}}, update = update_cost(&p);
    printf("\non %s, at most %.0f TFLOP/s and %.0f GB/s (%lld samples at once, as the device %s plans them):\n",
           p.gpu->title, p.rate / 1e12, p.gpu->memory, (long long)plan->n, v->network.device->ops->name);
    printf("%-24s %-13s  %9s %10s  %-7s %8s  %9s %10s  %-7s %8s\n", "layer", "op", "GFLOP fwd", "bytes", "bound", "ms",
           "GFLOP bwd", "bytes", "bound", "ms");
    for (int i = 0; i < plan->nsteps; i++) {
        printf("%-24.24s %-13s", step_name(&p, &plan->steps[i]), op_row(plan->steps[i].desc.kind)->name);
        for (int b = 0; b < 2; b++) {
            const struct cost c = step_cost(&p, &plan->steps[i], b);
            cost_print(&c, bound_of(&c));
            cost_add(&all[b], &c);
        }
        printf("\n");
    }
    printf("%-24s %-13s", "a pass", "");
    cost_print(&all[0], ""), cost_print(&all[1], "");
    printf("\n%-24s %-13s", "update", "");
    cost_print(&update, bound_of(&update));
    double ms = p.passes * (all[0].ms + all[1].ms) + update.ms;
    printf("\na step of %d pass%s should take %.3f ms or more: %.0f samples a second\n", p.passes,
           p.passes == 1 ? "" : "es", ms, (double)plan->n * p.passes / ms * 1e3);
}

/* ---- for programs ------------------------------------------------------------------------- */
static void cost_put(struct json *j, const char *key, const struct cost *c) {
    json_object(j, key, JSON_REAL("flops", c->flops), JSON_REAL("bytes", c->bytes), JSON_REAL("ms", c->ms),
                JSON_INT("launches", c->launches), JSON_TEXT("bound", bound_of(c)));
}

void model_cost_put(const struct model_view *v, const char *gpu, struct json *j) {
    const struct cost_page p = page_of(v, gpu);
    const struct plan *plan = v->network.plan;
    struct cost all = {0}, update = update_cost(&p);
    json_open(j, "cost", '{');
    json_put(j, JSON_TEXT("device", p.gpu->title), JSON_TEXT("plan", v->network.device->ops->name),
             JSON_INT("samples", plan->n), JSON_INT("passes", p.passes));
    json_array(j, "steps", i, plan->nsteps) {
        json_open(j, NULL, '{');
        json_string(j, "layer", step_name(&p, &plan->steps[i]));
        json_string(j, "op", op_row(plan->steps[i].desc.kind)->name);
        for (int b = 0; b < 2; b++) {
            const struct cost c = step_cost(&p, &plan->steps[i], b);
            cost_put(j, b ? "backward" : "forward", &c);
            cost_add(&all, &c);
        }
        json_close(j, '}');
    }
    cost_put(j, "update", &update);
    json_real(j, "step_ms", p.passes * all.ms + update.ms);
    json_close(j, '}');
}
