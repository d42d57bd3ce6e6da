/* A trained network as an ONNX file: opset 17, any number of samples at once, f32. */
#pragma once
#include "engine/data/preprocessing.h"
#include "engine/model/model.h"

struct onnx_source {
    const struct model *model;
    const float *values, *buffers; /* its arenas, in the host's memory */
    const struct dataset *data;
    const struct normalization *norm;
};
/* Its input, "input", is (samples, shape) of raw values: pictures' bytes as floats from 0 to 255, tokens as int64; the first
 * operators normalise them as in training. Its output is "logits", or "output" of a network that was trained on numbers.
 * Properties of the file: class_names (a list in JSON), preprocessing (as in a checkpoint). *bytes: its size. ERR_CONFIG: a
 * layer has no such form; ERR_DATA: it is larger than ONNX files can be. */
MUST_CHECK enum error onnx_write(const struct onnx_source *s, const char *path, size_t *bytes);
