/* The list of links. */
#include "transport/link/link.h"

#include <string.h>

#define LINK(KIND, name, joins, launched, about) extern const struct link_ops link_##name;
#include "engine/base/links.def"

static const struct link_ops *const kinds[] = {
#define LINK(KIND, name, joins, launched, about) &link_##name,
#include "engine/base/links.def"
};

const struct link_ops *const *link_kinds(int *count) {
    *count = (int)(sizeof kinds / sizeof *kinds);
    return kinds;
}

const struct link_ops *link_find(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i]->row->name, name)) return kinds[i];
    return NULL;
}

enum error link_fail_own(struct link *l, enum error err) {
    char words[ERROR_WORDS];
    return l->ops->fail(l, err, error_words(words, sizeof words));
}

void sink_copy(void *ctx, size_t offset, const void *data, size_t n) {
    memcpy((char *)ctx + offset, data, n);
}
