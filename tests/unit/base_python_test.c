/* What a python3 answers is checked as if it could be anything: plans of random words, of whole ones cut short or changed in a
 * word, and heads that lie. Each is refused with the file's name, or is a plan that holds. */
#include "tests/harness/harness.h"

#include "engine/base/plugin.h"

#include <stdio.h>
#include <string.h>

/* The module's text replaces what writes answers, once the description is out. */
static const char hostile[] = "ENGINE_PLUGIN_VERSION = %d\n"
                              "import __main__ as engine, random, struct\n"
                              "random.seed(%d)\n"
                              "def all_reduce(rank, ranks):\n"
                              "    whole = 0, ranks\n"
                              "    for other in range(1, ranks) if rank == 0 else [0]:\n"
                              "        yield {'add' if rank == 0 else 'send': (other, *whole)}\n"
                              "    for other in range(1, ranks) if rank == 0 else [0]:\n"
                              "        yield {'send' if rank == 0 else 'put': (other, *whole)}\n"
                              "right = engine.write\n"
                              "def write(kind, line, data):\n"
                              "    if len(data) < 100:\n"
                              "        return right(kind, line, data)\n"
                              "    words = list(struct.unpack(f'<{len(data) // 4}i', data))\n"
                              "    odd = [-2**31, -1, 0, 1, 2, 3, 4, 7, 2**20, 2**31 - 1]\n"
                              "    how = random.randrange(6)\n"
                              "    if how == 0:\n"
                              "        words = [random.choice(odd) for _ in range(random.randrange(200))]\n"
                              "    elif how == 1:\n"
                              "        words = words[:random.randrange(len(words))]\n"
                              "    elif how == 2:\n"
                              "        words += words[:random.randrange(1, 9)]\n"
                              "    elif how == 3:\n"
                              "        return engine.os.write(engine.wire, engine.HEAD.pack(random.choice(odd), "
                              "random.choice([1e30, float('nan'), -1]),\n"
                              "                                                         random.choice(odd) * 2**20))\n"
                              "    else:\n"
                              "        words[random.randrange(len(words))] = random.choice(odd)\n"
                              "    right(0, 0, struct.pack(f'<{len(words)}i', *words))\n"
                              "engine.write = write\n";

static void answers_are_checked(void **state) {
    enum { SEEDS = 40 };
    int refused = 0;
    (void)state;
    plugin_set_patience(1);
    for (int seed = 0; seed < SEEDS; seed++) {
        char name[32], text[4096];
        const struct plugin *p;
        snprintf(name, sizeof name, "hostile%d.py", seed);
        snprintf(text, sizeof text, hostile, ENGINE_PLUGIN_VERSION, seed);
        save_text(scratch_path(name), text);
        assert_ok(plugin_open(scratch_path(name), PLUGIN_ALGORITHM, NULL, &p));
        if (plugin_prepare(p, 3) == ERR_NONE) continue;
        refused++;
        if (!strstr(error_message(), name)) fail_msg("seed %d: %s", seed, error_message());
    }
    assert_true(refused > SEEDS / 2 && refused < SEEDS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_checked)};
    return cmocka_run_group_tests_name("answers of python3", tests, NULL, NULL);
}
