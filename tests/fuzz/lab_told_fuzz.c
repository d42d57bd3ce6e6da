/* What a user's command has told: its first byte says in which form. */
#include "tests/fuzz/fuzz.h"

#include "lab/results/foreign_told.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct told t;
    enum error err;
    if (n == 0) return 0;
    told_init(&t);
    const char *path = fuzz_file(0, bytes + 1, n - 1);
    err = bytes[0] % 3 == 2 ? told_csv(path, &t) : told_lines(path, bytes[0] % 3 == 0, &t);
    if (err == ERR_NONE && told_settle(&t) == ERR_NONE)
        for (size_t i = 1; i < t.n; i++)
            if (t.row[i].step <= t.row[i - 1].step) abort();
    told_fini(&t);
    return 0;
}
