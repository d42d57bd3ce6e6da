/* The first lines of a run: what runs where, how it shares gradients, and what is unusual. */
#include "engine/base/text.h"
#include "engine/settings/run_config.h"
#include "engine/tell/tell.h"
#include "engine/train/internal.h"

#include <stdio.h>

/* ", 512 of them trained, 2 groups": what optimizer.freeze and .groups make of the parameters. */
static const char *tensors_text(const struct trainer *t, char out[96]) {
    const struct optim_groups *g = &t->config->optimizer.groups;
    char trained[32];
    int n = 0;
    *out = '\0';
    if (t->tensors.trained < t->model->parameters)
        n = snprintf(out, 96, ", %s of them trained", text_of_count(t->tensors.trained, trained));
    if (g->count > 1)
        snprintf(out + n, 96 - (size_t)n, ", %d group%s with keys of %s own", g->count - 1, g->count > 2 ? "s" : "",
                 g->count > 2 ? "their" : "its");
    return out;
}

void banner_show(struct progress *p, const struct trainer *t) {
    const struct run_config *c = t->config;
    char params[32], samples[32], vals[32], tensors[96], split[64];
    progress_say(p, "engine: %s on %s, %lld thread%s each - %s", c->mode, c->devices_text, (long long)c->threads,
                 c->threads == 1 ? "" : "s", t->job->mode->step->describe(t->mode));
    dataset_split_words(t->feed.val, split);
    progress_say(p, "model %s, %s parameters%s - data %s, %s training and %s validation samples%s%s%s", t->model->name,
                 text_of_count(t->model->parameters, params), tensors_text(t, tensors), t->feed.data->name,
                 text_of_count(t->feed.data->size, samples), text_of_count(t->feed.val->size, vals), *split ? " (" : "",
                 split, *split ? ")" : "");
    char pieces[48] = "";
    if (c->batch.accumulate > 1)
        snprintf(pieces, sizeof pieces, ", each in %lld pieces", (long long)c->batch.accumulate);
    int each = (int)c->batch.shards / t->standing.runs;
    double more = leaves_imbalance((int)c->batch.shards, t->standing.runs);
    char uneven[96] = "";
    if (more > 0)
        snprintf(uneven, sizeof uneven, ": %d or %d of them a device, an imbalance of %.3g %%", each + 1, each,
                 100 * more);
    progress_say(p, "batch %lld in %lld shards%s%s%s - %s, learning rate %g%s - seed %lld", (long long)c->batch.size,
                 (long long)c->batch.shards, c->batch.shards_why, uneven, pieces, t->optim->section.name, t->rate.base,
                 c->lr_scale.rule == LR_SCALE_NONE ? "" : " (scaled)", (long long)c->seed);
    if (t->feed.norm.targets)
        progress_say(p, "targets are normalised: the loss is of these, RMSE and MAE are in their unit");
    if (c->data.sampling == SAMPLING_BALANCED)
        progress_say(p, "samples are drawn with replacement, each class equally often; validation takes each once");
    if (c->data.sampling == SAMPLING_WEIGHTS)
        progress_say(
            p,
            "samples are drawn with replacement by their weights, worth %.4g equal ones of %lld; validation takes "
            "each once",
            t->feed.weights.worth, (long long)t->feed.data->size);
    criterion_show(t, p);
    if (c->precision == PRECISION_BF16 && !device_find(c->devices.kind)->has_bf16())
        progress_say(p, "warning: products of bf16 are emulated on this processor: right, but f32 is faster here");
    char planted[INJECT_TEXT];
    if (*inject_text(c, planted)) progress_say(p, "warning: planted on purpose: %s", planted);
    if (c->inject.fault.kind && c->inject.fault.step > t->steps)
        progress_say(p, "warning: step %lld, of the fault, never comes: there are %lld",
                     (long long)c->inject.fault.step, (long long)t->steps);
    if (c->sharing.plan.by_turns && t->optim->adaptive && t->standing.workers > 1)
        progress_say(p,
                     "warning: each step is %d updates (%s), and %s goes as far in each, however small its "
                     "gradient: lower optimizer.lr to compare with %s 0",
                     t->standing.workers, c->sharing.key, t->optim->section.name, c->sharing.key);
    if (c->ema.decay > 0)
        progress_say(p, "ema %.9g: evaluation is of the averaged weights, and so is ema.safetensors of a checkpoint",
                     c->ema.decay);
    if (t->job->resume) progress_say(p, "resuming from %s at step %lld", t->job->resume, (long long)t->at.step);
    progress_say(p, "run %s", t->job->run_dir);
}
