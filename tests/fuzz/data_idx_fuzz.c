/* IDX samples with their labels: the first byte says how much is which. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char yaml[256];
    size_t cut = n ? bytes[0] % n : 0;
    const char *x = fuzz_file(0, bytes + cut, n - cut), *y = fuzz_file(1, bytes + (n > 0), cut - (cut > 0));
    snprintf(yaml, sizeof yaml, "{set: idx, train: %s, labels: %s, val: 1}", x, y);
    fuzz_set(yaml);
    return 0;
}
