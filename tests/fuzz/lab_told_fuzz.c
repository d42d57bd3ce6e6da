/* What a user's command has told: its first byte says in which form. */
#include "tests/fuzz/fuzz.h"

#include "engine/base/digest.h"
#include "lab/results/foreign_told.h"

static void put(uint8_t *to, uint64_t v, int n) {
    for (int i = 0; i < n; i++) to[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t seal(const void *bytes, size_t n) {
    uint32_t crc = crc32c(0, bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* An event with good checksums, so that what it holds is read. */
static const char *sealed(const uint8_t *bytes, size_t n) {
    uint8_t *record = malloc(n + 16);
    if (!record) abort();
    put(record, n, 8);
    put(record + 8, seal(record, 8), 4);
    memcpy(record + 12, bytes, n);
    put(record + 12 + n, seal(bytes, n), 4);
    const char *path = fuzz_file(0, record, n + 16);
    free(record);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct told t;
    enum error err = ERR_NONE;
    if (n == 0) return 0;
    told_init(&t);
    const char *path = bytes[0] % 5 == 4 ? sealed(bytes + 1, n - 1) : fuzz_file(0, bytes + 1, n - 1);
    switch (bytes[0] % 5) {
    case 0:
    case 1:
        err = told_lines(path, bytes[0] % 5 == 0, &t);
        break;
    case 2:
        err = told_csv(path, &t);
        break;
    default:
        err = told_events(path, &t);
    }
    if (err == ERR_NONE && told_settle(&t, true) == ERR_NONE)
        for (size_t i = 1; i < t.n; i++)
            if (t.row[i].step <= t.row[i - 1].step) abort();
    told_fini(&t);
    return 0;
}
