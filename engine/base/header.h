/* The header of an arena: what rides with the gradients (loss, correct, samples, stop), and back with the values
 * (whether the step was skipped, too). */
#pragma once

enum { HEADER_FLOATS = 16 }; /* a cache line */
enum header_slot { HEADER_LOSS, HEADER_CORRECT, HEADER_SAMPLES, HEADER_STOP, HEADER_SKIPPED };
