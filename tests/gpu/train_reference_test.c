/* The zoo on a GPU against PyTorch. */
#define REFERENCE_DEVICE "cuda"
#include "tests/conformance/train_pytorch_test.c"
