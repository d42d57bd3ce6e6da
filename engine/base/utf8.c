/* UTF-8. */
#include "engine/base/utf8.h"

bool utf8_feed(struct utf8 *u, unsigned char byte, bool *done) {
    *done = false;
    if (u->left > 0) {
        if ((byte & 0xc0) != 0x80) return false;
        u->code = u->code << 6 | (byte & 0x3f);
        *done = --u->left == 0;
        bool surrogate = u->code >= 0xd800 && u->code < 0xe000;
        return !*done || (u->code >= u->least && u->code < CODE_POINTS && !surrogate);
    }
    if (byte < 0x80)
        *u = (struct utf8){.code = byte}, *done = true;
    else if (byte >= 0xc2 && byte < 0xe0)
        *u = (struct utf8){byte & 0x1f, 1, 0x80};
    else if (byte >= 0xe0 && byte < 0xf0)
        *u = (struct utf8){byte & 0x0f, 2, 0x800};
    else if (byte >= 0xf0 && byte < 0xf5)
        *u = (struct utf8){byte & 0x07, 3, 0x10000};
    else
        return false;
    return true;
}

int utf8_put(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned first[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(first[more] | code >> 6 * more);
    for (int k = 1; k <= more; k++) out[k] = (char)(0x80 | (code >> 6 * (more - k) & 0x3f));
    return more + 1;
}
