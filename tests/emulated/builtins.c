/* The other half of NVIDIA's run-time compiler: it has to be there. */
__attribute__((visibility("default"))) extern const int nvrtc_builtins;
const int nvrtc_builtins = 1;
