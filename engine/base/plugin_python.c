#include "engine/base/plugin_python.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

/* Takes a line off the text. */
static char *python_line(char **text) {
    char *line = *text;
    *text += strcspn(line, "\n");
    if (**text) *(*text)++ = '\0';
    return text_defuse(line, "");
}

static bool python_parameters_read(struct python *p, char *text) {
    for (int n = 0; *text; n++) {
        char *line = python_line(&text), *value = strchr(line, ' ');
        if (!value || n == ENGINE_PARAMETERS) return false;
        *value++ = '\0';
        snprintf(p->words[n], sizeof p->words[n], "%s", line);
        p->parameter[n] = (struct engine_parameter){p->words[n], 0, NULL};
        if (!text_real(value, &p->parameter[n].standard)) return false;
    }
    return true;
}

/* "ORDER BLOCK FEEDBACK SCHEDULES", what it is, and for each parameter its name and value. */
static bool python_read(struct python *p, char *text) {
    static const char *const orders[] = {[ENGINE_TREE] = "tree", [ENGINE_RING] = "ring", [ENGINE_OWN] = "own"};
    char order[8];
    long long block;
    int feedback, schedules, i = 0, about = ENGINE_PARAMETERS;
    if (sscanf(python_line(&text), "%7s %lld %d %d", order, &block, &feedback, &schedules) != 4) return false;
    while (i <= ENGINE_OWN && strcmp(order, orders[i]) != 0) i++;
    snprintf(p->words[about], sizeof p->words[about], "%s", python_line(&text));
    p->algorithm = (struct engine_algorithm){i, plan_all_reduce, plan_declare};
    p->compressor = (struct engine_compressor){block, feedback, coder_bytes, coder_encode, coder_add};
    p->schedule = schedule_of(schedules);
    p->of = (struct engine_plugin){.version = ENGINE_PLUGIN_VERSION,
                                   .about = p->words[about],
                                   .parameters = p->parameter,
                                   .algorithm = i <= ENGINE_OWN ? &p->algorithm : NULL,
                                   .compressor = block >= 0 ? &p->compressor : NULL,
                                   .schedule = schedules ? &p->schedule : NULL};
    return python_parameters_read(p, text);
}

enum error python_describe(struct python *p) {
    const struct question q = {.what = PYTHON_DESCRIBE, .err = ERR_CONFIG};
    size_t n;
    pthread_mutex_init(&p->lock, NULL);
    TRY(child_ask(p, &q, &n));
    child_end(p);
    if (python_read(p, p->answer)) return ERR_NONE;
    return FAIL(ERR_CONFIG, "plug-in '%s': %s\nat most %d parameters, each with a number as its default", p->path,
                "what it says of itself cannot be used", (int)ENGINE_PARAMETERS);
}
