/* A real browser, without a window, where the machine has one: what a page looks like is asked of it. */
#pragma once
#include <stdbool.h>

/* Chromium's program; NULL, with a line that says so, where there is none. ENGINE_BROWSER names another. */
const char *browser_find(void);

struct browser_view {  /* of a page in a frame of some width */
    int inner, scroll; /* the page's width, and that of what is in it: more scrolls sideways */
    int plots,
        hidden;       /* svg.plot; those that are not to be seen even where all is opened, whichever way switches are */
    int outside;      /* texts that reach out of their svg */
    int overlaps;     /* pairs of texts of one svg that lie over each other */
    double least;     /* pixels of the smallest text in an svg */
    int complaints;   /* of the console: errors, refused resources */
    char words[2048]; /* what was wrong */
};
/* Loads the file; fails the test when the browser does not answer. dark: as for readers who prefer it. */
void browser_view(const char *program, const char *file, int width, bool dark, struct browser_view *out);
/* What the page at an address has become after four seconds of its own time, in a static buffer; fails the test when
 * the console complains. */
const char *browser_dom(const char *program, const char *url);
