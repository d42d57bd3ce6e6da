/* A checker of XML, and of what SVG draws: for tests of what the engine writes. */
#pragma once
#include <stdbool.h>

/* NULL when all of the text is one well-formed element (attributes quoted and unique, tags closed in order, nothing but
 * the five names and numbers as entities); else what is wrong, with what follows, in a static buffer. */
const char *xml_wrong(const char *text);
