/* Files of tokens, and of the characters that they stand for: the first byte says how much is which. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char yaml[256];
    size_t cut = n ? bytes[0] % n : 0;
    const char *tokens = fuzz_file(0, bytes, cut), *characters = fuzz_file(1, bytes + cut, n - cut);
    snprintf(yaml, sizeof yaml, "{set: tokens, train: %s, context: 2, val: 1, type: %s, characters: %s}", tokens,
             n & 1 ? "u16" : "i32", characters);
    fuzz_set(yaml);
    return 0;
}
