/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { CODE_POINTS = 0x110000 };
struct utf8 { /* a character of which a part is there; zeroed: none */
    uint32_t code;
    int left; /* bytes that are still to come */
    uint32_t least;
};
/* Takes the next byte. *done: u->code is a whole character. false: this is not UTF-8. */
bool utf8_feed(struct utf8 *u, unsigned char byte, bool *done);
/* Writes a character; gives its bytes, 1 to 4. */
int utf8_put(uint32_t code, char out[4]);
