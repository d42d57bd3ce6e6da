/* Learning rate schedules, as PyTorch's MultiStepLR, CosineAnnealingLR, LinearLR, CosineAnnealingWarmRestarts and
 * OneCycleLR stepped at every optimizer step. Over the first 'warmup' steps the factor climbs to 1 by equal amounts, from
 * 1 / warmup. Cosine and linear spread over the steps after that, to the end of training or of a length of
 * their own, after which they stay; the milestones of 'step' count from the start of training and are not moved. Restarts begin
 * after warm-up; one_cycle has a rise of its own, and cycles no momentum. */
#include "engine/optim/schedule.h"

#include "engine/base/real.h"

#include <math.h>

struct schedule_config {
    struct config_span warmup;
    struct config_span length; /* cosine, linear: off: of the whole training */
    struct config_list at;     /* step: milestones */
    double gamma;              /* step */
    double end;                /* cosine, linear, exponential, restarts: the factor at the end */
    double first;              /* exponential: that after warm-up */
    struct config_span cycle;  /* restarts: the first, and */
    int64_t growth;            /* by what each is longer than the one before */
    double rise;               /* one_cycle: the share of the steps that it takes, */
    double begin, fall;        /* what the peak is divided by at first, and that at the end */
};
struct place { /* where training stands */
    int64_t step, per_epoch;
    int64_t warmup, steps; /* steps: the last, of training or of the schedule's own length */
    double done;           /* of the steps after warm-up, 0 to 1 */
};

static double constant_factor(const struct schedule_config *c, const struct place *p) {
    (void)c, (void)p;
    return 1;
}

static double step_factor(const struct schedule_config *c, const struct place *p) {
    const struct config_span *at = c->at.items;
    double factor = 1;
    for (int i = 0; i < c->at.count; i++)
        if (p->step >= span_steps(at[i], p->per_epoch)) factor *= c->gamma;
    return factor;
}

static double cosine_factor(const struct schedule_config *c, const struct place *p) {
    return c->end + (1 - c->end) * (1 + real_cos(M_PI * p->done)) / 2;
}

static double linear_factor(const struct schedule_config *c, const struct place *p) {
    return 1 + (c->end - 1) * p->done;
}

static double exponential_factor(const struct schedule_config *c, const struct place *p) {
    return c->first * real_pow(c->end / c->first, p->done);
}

/* The factor between two others along half a cosine; done: 0 to 1. */
static double cosine_between(double from, double to, double done) {
    return to + (from - to) * (1 + real_cos(M_PI * done)) / 2;
}

static double restarts_factor(const struct schedule_config *c, const struct place *p) {
    int64_t at = p->step - p->warmup, length = span_steps(c->cycle, p->per_epoch);
    if (at < 0) at = 0;
    if (c->growth == 1) at %= length;
    for (; at >= length; length *= c->growth) at -= length;
    return cosine_between(1, c->end, (double)at / (double)length);
}

/* The factor of one_cycle, with torch's phases: the rise ends at a step that need not be whole, the fall at the last step. */
static double one_cycle_factor(const struct schedule_config *c, const struct place *p) {
    double step = (double)p->step, peak = c->rise * (double)p->steps - 1, last = (double)p->steps - 1;
    double first = 1 / c->begin;
    if (step > last) step = last;
    if (step <= peak && peak > 0) return cosine_between(first, 1, step / peak);
    return cosine_between(1, first / c->fall, last > peak ? (step - peak) / (last - peak) : 1);
}

#define WARMUP                                                                                                         \
    {                                                                                                                  \
        .key = "warmup", .type = CONFIG_SPAN, .offset = offsetof(struct schedule_config, warmup), .standard = "off",   \
        .choices = "off", .help = "Steps or epochs in which the rate rises from nearly zero",                          \
        .also = "warmup_steps|warmup_epochs|num_warmup_steps|warmup_ratio"                                             \
    }
#define LENGTH                                                                                                         \
    {                                                                                                                  \
        .key = "for", .type = CONFIG_SPAN, .offset = offsetof(struct schedule_config, length), .standard = "train",    \
        .min = 1e-12, .max = 1e15, .choices = "train",                                                                 \
        .help = "Steps or epochs from the start of training until the end is reached; then the rate stays constant; "  \
                "train: the length of train.for"                                                                       \
    }
#define END(name, help_text)                                                                                           \
    {                                                                                                                  \
        .key = name, .type = CONFIG_REAL, .offset = offsetof(struct schedule_config, end), .standard = "0", .max = -1, \
        .help = help_text                                                                                              \
    }

static const struct config_field constant_fields[] = {WARMUP, {.key = NULL}};
static const struct config_field step_fields[] = {
    {.key = "at",
     .type = CONFIG_SPANS,
     .offset = offsetof(struct schedule_config, at),
     .standard = "[3ep, 5ep]",
     .help = "Steps or epochs from the start of training at which the rate is multiplied by gamma"},
    {.key = "gamma",
     .type = CONFIG_REAL,
     .offset = offsetof(struct schedule_config, gamma),
     .standard = "0.1",
     .max = -1,
     .help = "Factor of the rate at each of 'at'"},
    WARMUP,
    {.key = NULL}};
static const struct config_field cosine_fields[] = {
    END("min", "Rate at the end, as a fraction of the base rate"), LENGTH, WARMUP, {.key = NULL}};
static const struct config_field linear_fields[] = {
    END("to", "Rate at the end, as a fraction of the base rate"), LENGTH, WARMUP, {.key = NULL}};

#define FACTOR(name, member, usual, text)                                                                              \
    {                                                                                                                  \
        .key = name, .type = CONFIG_REAL, .offset = offsetof(struct schedule_config, member), .standard = usual,       \
        .min = 1e-30, .max = 1e30, .help = text                                                                        \
    }
static const struct config_field exponential_fields[] = {
    FACTOR("to", end, "0.01", "Rate at the end, as a fraction of the base rate; it may be above 1"),
    FACTOR("from", first, "1", "Rate at the beginning, likewise"),
    LENGTH,
    WARMUP,
    {.key = NULL}};

static const struct config_field restarts_fields[] = {
    {.key = "every",
     .type = CONFIG_SPAN,
     .offset = offsetof(struct schedule_config, cycle),
     .standard = "1ep",
     .min = 1e-12,
     .max = 1e15,
     .help = "Length of the first cycle",
     .also = "t_0|first_cycle_steps|cycle_length"},
    {.key = "times",
     .type = CONFIG_INT,
     .offset = offsetof(struct schedule_config, growth),
     .standard = "1",
     .min = 1,
     .max = 1000000,
     .help = "By what each cycle is longer than the one before",
     .also = "t_mult|cycle_mult"},
    END("min", "Rate at the end of each cycle, as a fraction of the base rate"),
    WARMUP,
    {.key = NULL}};
static const struct config_field one_cycle_fields[] = {
    {.key = "rise",
     .type = CONFIG_SHARE,
     .offset = offsetof(struct schedule_config, rise),
     .standard = "30%",
     .max = 1,
     .help = "Share of the steps in which the rate rises to optimizer.lr",
     .also = "pct_start"},
    {.key = "begin",
     .type = CONFIG_REAL,
     .offset = offsetof(struct schedule_config, begin),
     .standard = "25",
     .min = 1,
     .max = 1e12,
     .help = "What optimizer.lr is divided by at first",
     .also = "div_factor"},
    {.key = "fall",
     .type = CONFIG_REAL,
     .offset = offsetof(struct schedule_config, fall),
     .standard = "1e4",
     .min = 1,
     .max = 1e30,
     .help = "What the first rate is divided by at the end",
     .also = "final_div_factor"},
    LENGTH,
    {.key = NULL}};

static const struct schedule {
    struct config_section section;
    double (*factor)(const struct schedule_config *c, const struct place *p);
    bool ends; /* it has an end, of training if 'for' says none */
} schedules[] = {
    {{.name = "constant",
      .fields = constant_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "warmup",
      .help = "The rate stays at the base rate",
      .also = "none|off|ConstantLR|constant_with_warmup"},
     constant_factor},
    {{.name = "step",
      .fields = step_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "at",
      .help = "The rate is multiplied by gamma at each milestone",
      .also = "StepLR|MultiStepLR|multistep|step_decay"},
     step_factor},
    {{.name = "cosine",
      .fields = cosine_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "warmup",
      .help = "The rate falls along half a cosine to 'min' at the end",
      .also = "CosineAnnealingLR|cosine_annealing|cosine_with_warmup|cosine_decay|CosineDecay|OneCycleLR"},
     cosine_factor,
     true},
    {{.name = "linear",
      .fields = linear_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "to",
      .help = "The rate falls along a straight line to 'to' at the end",
      .also = "LinearLR|linear_decay|linear_with_warmup|PolynomialLR"},
     linear_factor,
     true},
    {{.name = "exponential",
      .fields = exponential_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "to",
      .help = "The rate changes by the same factor in every step, to 'to' at the end",
      .also = "ExponentialLR|exponential_decay"},
     exponential_factor,
     true},
    {{.name = "restarts",
      .fields = restarts_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "every",
      .help = "Down half a cosine to 'min' again and again, as torch's CosineAnnealingWarmRestarts"},
     restarts_factor},
    {{.name = "one_cycle",
      .fields = one_cycle_fields,
      .size = sizeof(struct schedule_config),
      .shorthand = "rise",
      .help = "Up to optimizer.lr and down to nearly nothing, as torch's OneCycleLR; momentum stays as it is"},
     one_cycle_factor,
     true},
};

static const struct config_section *section_at(int i) {
    return &schedules[i].section;
}

const struct config_variants schedule_variants = {
    .name = "name", .count = sizeof schedules / sizeof schedules[0], .at = section_at};

int64_t schedule_warmup(const struct config_variant *schedule, int64_t per_epoch) {
    int64_t steps = span_steps(((const struct schedule_config *)schedule->config)->warmup, per_epoch);
    return steps < 0 ? 0 : steps;
}

double schedule_factor(const struct config_variant *schedule, int64_t step, int64_t steps, int64_t per_epoch) {
    const struct schedule_config *c = schedule->config;
    int64_t warmup = schedule_warmup(schedule, per_epoch);
    if (c->length.unit != SPAN_OFF) steps = span_steps(c->length, per_epoch);
    double done = step <= warmup ? 0 : steps <= step ? 1 : (double)(step - warmup) / (double)(steps - warmup);
    double climb = step < warmup ? (double)(step + 1) / (double)warmup : 1;
    return climb * schedules[schedule->index].factor(c, &(struct place){step, per_epoch, warmup, steps, done});
}

bool schedule_needs_end(const struct config_variant *schedule) {
    const struct schedule_config *c = schedule->config;
    return schedules[schedule->index].ends && c->length.unit == SPAN_OFF;
}

int64_t span_steps(struct config_span s, int64_t per_epoch) {
    if (s.unit == SPAN_OFF || s.unit == SPAN_END) return -1;
    if (s.unit == SPAN_SECONDS) return SPAN_ENDLESS;
    double steps = s.unit == SPAN_EPOCHS ? s.value * (double)per_epoch : s.value;
    if (!(steps > 0)) return 0;
    if (steps >= (double)SPAN_ENDLESS) return SPAN_ENDLESS;
    return steps < 1 ? 1 : llround(steps);
}
