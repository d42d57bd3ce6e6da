/* engine model export: a trained network for other programs. */
#include "cli/use/model.h"

#include "cli/use/trained.h"
#include "engine/base/text.h"
#include "engine/save/onnx.h"
#include "engine/train/trainer.h"

#include <stdio.h>
#include <string.h>

struct export_options {
    struct cli_trained trained;
    const char *output;
};
#define OPTIONS_STRUCT struct export_options

static void export_report(const struct trainer *t, const char *path, size_t size) {
    char bytes[32], input[96], output[96];
    printf("%s: ONNX, %s; input (samples, %s), %s (samples, %s)\n", path, text_of_bytes((double)size, bytes),
           shape_text(&t->model->input, input), t->feed.data->classes ? "logits" : "output",
           shape_text(&t->model->output, output));
}

static int model_export_command(const struct cli *cli) {
    struct export_options *o = cli->options;
    struct trainer *t;
    size_t size;
    if (!strcmp(o->output, "-"))
        return cli_end(
            FAIL(ERR_USAGE, "a model is written to a file, not to standard output\nname one, as in -o net.onnx"));
    enum error err = cli_trained_open(&o->trained, cli->pool, &t);
    int code = error_exit_code(err);
    if (err == ERR_NONE) {
        const struct onnx_source source = {t->model, t->arena.values, t->arena.buffers, t->feed.data, &t->feed.norm};
        err = onnx_write(&source, o->output, &size);
        if (err == ERR_NONE) export_report(t, o->output, size);
        code = cli_end(err);
    }
    cli_trained_close(&o->trained, t);
    return code;
}

static const struct option options[] = {
    {TRAINED_PATH, .missing = "which network? a run's, a checkpoint's or a configuration's"},
    {"--output", "FILE", "the file to write: net.onnx", CONFIG_STRING, AT(output), .also = "-o",
     .missing = "where to? as in -o net.onnx"},
    TRAINED_OPTIONS,
    {0}};

const struct command model_export = {
    .name = "export",
    .summary = "writes a trained network as an ONNX file (opset 17), with its normalisation and class names",
    OPTIONS(options),
    .run = model_export_command,
};
