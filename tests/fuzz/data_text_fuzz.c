/* Text of characters. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char yaml[256];
    snprintf(yaml, sizeof yaml, "{set: text, train: %s, context: 3, val: 1}", fuzz_file(0, bytes, n));
    fuzz_set(yaml);
    return 0;
}
