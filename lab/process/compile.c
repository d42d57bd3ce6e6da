#include "lab/process/compile.h"

#include "engine/base/embedded.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lab/process/process.h"

#include <string.h>

extern const struct embedded plugin_examples[]; /* "examples/plugins/algorithm.c", ..., "engine/plugin.h" */

const char *compile_text(const char *ending) {
    for (const struct embedded *e = plugin_examples; e->name; e++)
        if (text_ends(e->name, ending)) return e->text;
    return "";
}

bool compile_is_source(const char *path) {
    return text_ends(path, ".c");
}

/* headers: a folder for engine_plugin.h. One that lies beside the source comes first. */
static enum error compile_with(const char *source, const char *object, const char *headers, struct pool *pool) {
    const char *words[16], *line = COMPILE_LINE, *text = compile_text("/plugin.h");
    char *header = pool_printf(pool, "%s/engine_plugin.h", headers);
    const char *const more[] = {"-Wall", "-I", headers, "-o", object, source, "-lm", NULL};
    int n = 0, code;
    for (line += strcspn(line, " "); *line; line += strcspn(line, " ")) {
        line += strspn(line, " ");
        if (!(words[n++] = pool_strndup(pool, line, strcspn(line, " ")))) return ERR_MEMORY;
    }
    memcpy(words + n, more, sizeof more);
    if (!header) return ERR_MEMORY;
    TRY(file_replace(header, text, strlen(text)));
    const struct process cc = {"cc", words, .out = "/dev/null"};
    if (process_run(&cc, pool, &code) != ERR_NONE)
        return FAIL(ERR_DEVICE, "'%s' has to be compiled, and there is no compiler 'cc'\ninstall gcc or clang", source);
    return code == 0 ? ERR_NONE
                     : FAIL(ERR_DATA, "'%s' does not compile\nthe compiler's messages stand before this one", source);
}

enum error compile_plugin(const char *source, struct pool *pool, const char **object) {
    char *headers;
    if (!file_exists(source)) return FAIL(ERR_INPUT, "there is no file '%s'", source);
    TRY_MEMORY(*object = pool_printf(pool, "%.*s.so", (int)strlen(source) - 2, source));
    TRY(file_make_temporary("headers", pool, &headers));
    enum error err = compile_with(source, *object, headers, pool), gone = file_remove_tree(headers);
    return err != ERR_NONE ? err : gone;
}
