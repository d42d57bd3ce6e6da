/* First weights from a file: 'model: {zoo: NAME, init: PATH, strict: false}'. PATH is a .safetensors
 * file, ours or another's with the same names, or a folder that checkpoint_find takes. */
#pragma once
#include "engine/save/checkpoint.h"
#include "engine/save/init_source.h"

/* Whether the file has what the model needs; reads its header alone. Every tensor that is missing,
 * not expected or of another shape goes to e (ERR_CONFIG then). ERR_INPUT: there is no file;
 * ERR_DATA: it is damaged. */
MUST_CHECK enum error init_check(const struct init_source *s, const struct model *m, struct config_errors *e);
/* Overwrites values and buffers with what the file has, in whatever float type it has it, and says
 * in the log what was left as it was. Fails as init_check, and with ERR_DATA for numbers that are
 * beyond f32. */
MUST_CHECK enum error init_load(const struct init_source *s, const struct model *m, float *values, float *buffers);
/* Takes off the tensors' names what they have in common before those of the model, as "transformer."
 * in what transformers saves and "module." in what a wrapped module saves, if that makes more of
 * them fit. */
void init_drop_prefix(struct st_file *f, const struct model *m);
