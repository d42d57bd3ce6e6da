/* What the program does: finds the command and runs it; the only place that ends the process. The library has it for
 * the program alone, so that the same code is not installed twice. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/base/give_up.h"
#include "engine/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int program_command_unknown(const char *name) {
    const char *names[32];
    int n;
    const struct command_row *all = command_rows(&n);
    const char *near = NULL;
    for (int i = 0; i < n; i++) {
        names[i] = all[i].command->name;
        if (!near && config_also(all[i].command->also, name)) near = names[i];
    }
    if (!near) near = text_nearest(name, names, n);
    fprintf(stderr, "error: unknown command '%s'%s%s%s\nhint: engine help\n", name, near ? ", did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    return error_exit_code(ERR_USAGE);
}

/* Whether all output was written. A reader that has gone, as head does, has had enough of it: that is no failure. */
static int program_output_flushed(int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    if (code || file_reader_gone(STDOUT_FILENO)) return code;
    fprintf(stderr, "error: cannot write to standard output: %s\n", strerror(errno));
    return error_exit_code(ERR_IO);
}

/* Opens /dev/null where standard input, output or error is closed: the next file to be opened would get its number, and with it what is
 * meant for the console. What holds the number instead fails as a closed descriptor does. */
static void program_reserve_standard(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* argv[2] and those after it are the command's own. */
static int program_command_start(const char *name, int argc, char **argv) {
    const struct command_alias *alias = command_alias(name);
    const struct command *c = alias ? alias->command : command_find(name);
    int n = 0;
    if (!c) return program_command_unknown(name);
    const char **words = calloc((size_t)argc + 2, sizeof *words);
    if (!words) return cli_fail(FAIL(ERR_MEMORY, "no memory for a command line"));
    words[n++] = c->name;
    if (alias) words[n++] = alias->option;
    for (int i = 2; i < argc; i++) words[n++] = argv[i];
    if (alias && isatty(STDERR_FILENO))
        fprintf(stderr, "note: 'engine %s' is now 'engine %s %s'\n", name, c->name, alias->option);
    int code = command_call(c, n, words);
    free(words);
    return code;
}

int engine_program(int argc, char **argv) {
    const char *name = argc < 2 ? "help" : argv[1];
    program_reserve_standard();
    (void)signal(SIGXFSZ, SIG_IGN); /* a file at its limit is an error of a write like a full disk's */
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    int code = program_output_flushed(program_command_start(name, argc, argv));
    given_up_exit(code);
    return code;
}
