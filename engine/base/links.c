#include "engine/base/links.h"

const char *const secure_names[SECURES] = {"auto", "off", "sealed", "encrypted"};

const struct link_row link_rows[] = {
    {"auto", JOINS_ANY, false},
#define LINK(KIND, name, joins, launched, about) {#name, joins, launched},
#include "engine/base/links.def"
};
