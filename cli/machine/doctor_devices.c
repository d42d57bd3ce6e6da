/* Kinds of devices, one after the other: the software that each needs, and of accelerators every unit: opened, with a
 * kernel run on it, and reached by the others. */
#include "cli/machine/doctor.h"

#include "engine/base/give_up.h"
#include "engine/base/text.h"
#include "engine/device/runtime.h"
#include "transport/carrier/carrier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The level of a kind of devices that is missing: that is wrong only if the kind was asked for. */
static enum doctor_level doctor_missing_level(const struct doctor *d, const struct device_ops *kind) {
    return d->asked && !strcmp(d->asked, kind->name) ? DOCTOR_MISSING : DOCTOR_NONE;
}

static void doctor_say_software(struct doctor *d, enum doctor_level lacking, const struct device_software *s) {
    doctor_begin(d, s->name);
    if (*s->missing)
        doctor_say(d, lacking, "%s", s->missing);
    else
        doctor_say(d, DOCTOR_OK, "%s%s%s", s->version, *s->where ? "  " : "", s->where);
}

/* ---- products ---- */

enum { ROWS = 70, IN = 130, OUT = 90 }; /* no multiples of what a kernel takes at once */
struct product {
    float x[ROWS * IN], w[OUT * IN], dy[ROWS * OUT], y[ROWS * OUT], dx[ROWS * IN], dw[OUT * IN];
};

/* Sixteenths, of which every precision holds each and f32 each sum: kernels may add them in any order. */
static void product_fill(float *v, int n) {
    for (int i = 0; i < n; i++) v[i] = (float)(i * 7919 % 17 - 8) / 16;
}

static enum error product_compute(struct device *dev, enum precision precision, struct product *m) {
    const struct op_desc d = {.kind = OP_LINEAR, .n = ROWS, .x = {1, {IN}}, .y = {1, {OUT}}, .precision = precision};
    struct op_args a = {
        .x = {m->x}, .w = {m->w}, .dy = m->dy, .y = m->y, .dx = {m->dx}, .dw = {m->dw}, .training = true};
    struct op *op;
    product_fill(m->x, ROWS * IN);
    product_fill(m->w, OUT * IN);
    product_fill(m->dy, ROWS * OUT);
    TRY(op_create(dev, &d, &op));
    enum error err = memory_alloc(op->saved_bytes, &a.saved);
    if (err == ERR_NONE) err = memory_alloc(op->scratch_bytes, &a.scratch);
    if (err == ERR_NONE) err = op->impl->forward(op, &a);
    if (err == ERR_NONE) err = op->impl->backward(op, &a);
    memory_free(a.saved);
    memory_free(a.scratch);
    op_free(op);
    return err;
}

static enum error product_open(const struct device_ops *kind, enum precision precision, struct product *m) {
    const struct device_params p = {.count = 1, .threads = 1};
    struct device *dev;
    TRY(kind->open(&p, &dev));
    enum error err = product_compute(dev, precision, m);
    kind->close(dev);
    return err;
}

/* Products of a linear layer by the kernels that are used here, beside those of plain C. */
static void doctor_check_products(struct doctor *d, const struct device_ops *kind) {
    static struct product plain, got;
    doctor_begin(d, "products");
    enum error err = product_open(device_find("ref"), PRECISION_F32, &plain);
    for (enum precision p = PRECISION_F32; p <= PRECISION_BF16 && err == ERR_NONE; p++) {
        err = product_open(kind, p, &got);
        if (err == ERR_NONE && memcmp(&plain, &got, sizeof got) != 0)
            err = FAIL(ERR_DEVICE,
                       "those of %s differ from plain C's on this processor\n"
                       "ENGINE_ISA=base does without its vectors; please report it, with the lines above",
                       precision_name(p));
    }
    if (err == ERR_NONE)
        doctor_say(d, DOCTOR_OK, "of f32 and bf16, forward and backward: as plain C has them");
    else
        doctor_error(d, DOCTOR_MISSING);
}

/* ---- one unit ---- */

enum { SAMPLE = 1000, PATIENCE = 30 };

static enum error doctor_run_kernel(struct device *dev, float *there, float *here) {
    const float *terms[2] = {there, there};
    for (int i = 0; i < SAMPLE; i++) here[i] = (float)i;
    TRY(device_write(dev, there, here, SAMPLE * sizeof *here));
    TRY(device_runtime(dev)->sum(dev, LANE_COMPUTE, there, terms, 2, NULL, SAMPLE));
    TRY(device_read(dev, here, there, SAMPLE * sizeof *here));
    for (int i = 0; i < SAMPLE; i++)
        if (here[i] != 2 * (float)i)
            return FAIL(ERR_DEVICE, "it adds %d and %d to %g\nthe GPU or its driver is broken", i, i, (double)here[i]);
    return ERR_NONE;
}

static enum error doctor_try_unit(const struct device_ops *kind, int unit) {
    const struct device_params p = {.count = 1, .unit = unit, .threads = 1, .timeout = PATIENCE};
    static float here[SAMPLE];
    struct device *dev;
    void *there;
    TRY(kind->open(&p, &dev));
    enum error err = device_alloc(dev, sizeof here, &there);
    if (err == ERR_NONE) {
        err = doctor_run_kernel(dev, there, here);
        device_free(dev, there);
    }
    kind->close(dev);
    return err;
}

static void doctor_check_unit(struct doctor *d, const struct device_ops *kind, int unit) {
    struct device_unit about = {.name = "?"};
    char name[32], all[32], left[32];
    snprintf(name, sizeof name, "%s:%d", kind->name, unit);
    doctor_begin(d, name);
    kind->unit_about(unit, &about);
    if (doctor_try_unit(kind, unit) != ERR_NONE)
        doctor_error(d, DOCTOR_MISSING);
    else
        doctor_say(d, DOCTOR_OK, "%s, %s, %s free, capability %d.%d, %s: opened, and a kernel ran", about.name,
                   text_of_bytes((double)about.memory, all), text_of_bytes((double)about.memory_free, left),
                   about.major, about.minor, about.bus);
}

/* ---- what units have of each other ---- */
enum { UNITS_MOST = 32 };
struct pairs { /* own: numbers that no other unit has; got: those of another */
    int count;
    struct device *dev[UNITS_MOST];
    void *own[UNITS_MOST], *got[UNITS_MOST];
};

static void pairs_close(struct pairs *p) {
    for (int i = 0; i < p->count; i++) {
        if (!p->dev[i]) continue;
        device_free(p->dev[i], p->own[i]);
        device_free(p->dev[i], p->got[i]);
        p->dev[i]->ops->close(p->dev[i]);
    }
}

static enum error pairs_open(struct pairs *p, const struct device_ops *kind) {
    static float here[SAMPLE];
    for (int i = 0; i < p->count; i++) {
        const struct device_params params = {.count = 1, .unit = i, .threads = 1, .timeout = PATIENCE};
        TRY(kind->open(&params, &p->dev[i]));
        TRY(device_alloc(p->dev[i], sizeof here, &p->own[i]));
        TRY(device_alloc(p->dev[i], sizeof here, &p->got[i]));
        for (int k = 0; k < SAMPLE; k++) here[k] = (float)(SAMPLE * i + k);
        TRY(device_write(p->dev[i], p->own[i], here, sizeof here));
        TRY(device_wait(p->dev[i]));
    }
    return ERR_NONE;
}

static enum error pairs_copy(struct pairs *p, int to, int from) {
    static float here[SAMPLE];
    TRY(device_zero(p->dev[to], p->got[to], sizeof here));
    TRY(device_runtime(p->dev[to])
            ->copy(p->dev[to], LANE_COMPUTE, p->got[to], p->dev[from], p->own[from], sizeof here));
    TRY(device_read(p->dev[to], here, p->got[to], sizeof here));
    for (int k = 0; k < SAMPLE; k++)
        if (here[k] != (float)(SAMPLE * from + k))
            return FAIL(ERR_DEVICE,
                        "what unit %d copies from unit %d is not what lies there\n"
                        "peer access does not work on this machine (IOMMU, ACS, a virtual machine): comm.backend: host "
                        "does without it",
                        to, from);
    return ERR_NONE;
}

/* Copies between each two, in both directions, and compares. */
static enum error pairs_try(const struct device_ops *kind, int count) {
    struct pairs p = {.count = count < UNITS_MOST ? count : UNITS_MOST};
    enum error err = pairs_open(&p, kind);
    for (int i = 0; i < p.count; i++)
        for (int j = 0; j < p.count && err == ERR_NONE; j++)
            if (i != j) err = pairs_copy(&p, i, j);
    pairs_close(&p);
    return err;
}

static void doctor_check_reach(struct doctor *d, const struct device_ops *kind, int count) {
    int apart = 0, a = 0, b = 0;
    doctor_begin(d, "peer access");
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (!kind->unit_reaches(i, j)) apart++, a = i, b = j;
    if (pairs_try(kind, count) != ERR_NONE)
        doctor_error(d, DOCTOR_MISSING);
    else if (apart)
        doctor_say(d, DOCTOR_WARNING,
                   "%d of %d pairs do not reach each other's memory (%s:%d and %s:%d): copies pass "
                   "through the host\n"
                   "a container or virtual machine may forbid it (IOMMU, ACS); 'engine doctor "
                   "--devices' shows all pairs",
                   apart, count * (count - 1), kind->name, a, kind->name, b);
    else
        doctor_say(d, DOCTOR_OK, "each of the %d reaches the others' memory: copied, and compared", count);
}

/* ---- carriers with a library of their own ---- */

static enum error doctor_try_carrier(const struct device_ops *kind, const struct carrier_ops *carrier) {
    const struct device_params p = {.count = 1, .threads = 1, .timeout = PATIENCE};
    struct device *dev;
    TRY(kind->open(&p, &dev));
    enum error err = carrier->probe(dev);
    kind->close(dev);
    return err;
}

/* Tries every carrier that needs software. Without it, mode ddp sends gradients through the host: it works, slower. */
static void doctor_check_carriers(struct doctor *d, const struct device_ops *kind) {
    int n;
    const struct carrier_ops *const *all = carrier_list(&n);
    for (int i = 0; i < n; i++) {
        struct device_software s;
        if (!all[i]->software) continue;
        all[i]->software(&s);
        doctor_begin(d, s.name);
        if (*s.missing)
            doctor_say(d, DOCTOR_WARNING, "%s", s.missing);
        else if (doctor_try_carrier(kind, all[i]) != ERR_NONE)
            doctor_error(d, DOCTOR_WARNING);
        else
            doctor_say(d, DOCTOR_OK, "%s, one rank opened and added  %s", s.version, s.where);
    }
}

/* ---- a kind ---- */

static void doctor_check_units(struct doctor *d, const struct device_ops *kind) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0;
    doctor_begin(d, kind->name);
    if (kind->units(&count) != ERR_NONE) {
        doctor_error(d, doctor_missing_level(d, kind));
        return;
    }
    doctor_say(d, DOCTOR_OK, "%d to be used%s%s", count, visible ? ", by CUDA_VISIBLE_DEVICES=" : "",
               visible ? visible : "");
    for (int i = 0; i < count && !given_up(); i++) doctor_check_unit(d, kind, i);
    if (count > 1 && !given_up()) doctor_check_reach(d, kind, count);
    if (!given_up()) doctor_check_carriers(d, kind);
}

static void doctor_check_kind(struct doctor *d, const struct device_ops *kind) {
    struct device_software s = {0};
    int units;
    bool here = !kind->units || kind->units(&units) == ERR_NONE;
    enum doctor_level lacking = here ? DOCTOR_MISSING : doctor_missing_level(d, kind);
    for (int i = 0; kind->software && kind->software(i, &s); i++)
        if (lacking == DOCTOR_MISSING) doctor_say_software(d, lacking, &s);
    if (kind->units)
        doctor_check_units(d, kind);
    else if (kind->software && !*s.missing)
        doctor_check_products(d, kind);
}

void doctor_devices(struct doctor *d) {
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    for (int i = 0; i < n; i++) doctor_check_kind(d, kinds[i]);
}
