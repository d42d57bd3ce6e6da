/* NVIDIA's run-time compiler, as far as the engine asks it: which version it is. It wants its other half when it
 * compiles, which nobody here makes it do. */
__attribute__((visibility("default"))) int nvrtcVersion(int *major, int *minor);

int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}
