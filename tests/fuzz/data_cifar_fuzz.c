/* CIFAR's records, plain or gzipped. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char yaml[256];
    snprintf(yaml, sizeof yaml, "{set: cifar, train: %s, val: 1}", fuzz_file(0, bytes, n));
    fuzz_set(yaml);
    return 0;
}
