/* For compilers without libFuzzer: runs a fuzz target over the files that are named. */
#include "tests/fuzz/fuzz.h"

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot read %s\n", path);
        return 66;
    }
    enum { MOST = 1 << 24 };
    uint8_t *bytes = malloc(MOST);
    size_t n = bytes ? fread(bytes, 1, MOST, f) : 0;
    fclose(f);
    (void)LLVMFuzzerTestOneInput(bytes, n);
    free(bytes);
    return 0;
}

int main(int argc, char **argv) {
    int code = 0;
    for (int i = 1; i < argc; i++) {
        int one = run_file(argv[i]);
        code = one ? one : code;
    }
    return code;
}
