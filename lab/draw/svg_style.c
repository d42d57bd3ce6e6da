/* Colours and hatches. On paper and to colour-blind readers the hatches, dashes and markers speak. */
#include "lab/draw/svg.h"

/* Paper, ink, soft ink, lines; then the colours of series, which differ in lightness too. */
static const char light[] = "--paper:#fff;--ink:#1a1c1f;--soft:#555b63;--grid:#dde1e6;--c0:#0072b2;--c1:#d55e00;"
                            "--c2:#009e73;--c3:#c05a96;--c4:#b07d00;--c5:#56b4e9;--c6:#5a5f66";
static const char dark[] = "--paper:#15171a;--ink:#e8eaed;--soft:#a9b0b8;--grid:#363c43;--c0:#56b4e9;--c1:#ff8a3d;"
                           "--c2:#2ec79b;--c3:#e79ac6;--c4:#e6b800;--c5:#9cc3ff;--c6:#b4bac2";

void plot_style(FILE *out) {
    static const char *const dashes[PLOT_COLOURS] = {"none", "7 3", "2 3", "9 3 2 3", "5 2", "12 3", "1 2"};
    fprintf(out, ":root{color-scheme:light dark;%s}\n", light);
    fprintf(out, "@media screen and (prefers-color-scheme:dark){:root{%s}}\n", dark);
    fprintf(out, "svg text{font:12px system-ui,'DejaVu Sans',Verdana,sans-serif;fill:var(--ink)}"
                 "svg .soft{fill:var(--soft)}svg .bold{font-weight:600}"
                 "svg .grid{stroke:var(--grid);stroke-width:1}"
                 "svg .axis{stroke:var(--soft);stroke-width:1}"
                 "svg .line{fill:none;stroke-linejoin:round}svg .band{stroke:none;opacity:.2}\n");
    for (int k = 0; k < PLOT_COLOURS; k++)
        fprintf(out,
                "svg .s%d{stroke:var(--c%d);stroke-width:%s;stroke-dasharray:%s}"
                "svg .f%d{fill:var(--c%d)}svg .m%d{fill:var(--c%d);stroke:var(--paper);stroke-width:.8}"
                "svg .b%d{fill:url(#hatch%d);stroke:var(--c%d);stroke-width:.8}\n",
                k, k, k ? "2" : "3.2", dashes[k], k, k, k, k, k, k, k);
    fprintf(out, "svg .model{stroke-width:1.3;stroke-dasharray:3 3}svg .run{opacity:.8}"
                 "svg .field{stroke:var(--grid)}svg .whisker{stroke-width:1.6;stroke-dasharray:none}"
                 "svg .strip{fill:transparent}svg .strip:hover{fill:var(--soft);fill-opacity:.25}\n");
}

void plot_hatches(FILE *out) {
    static const char *const lines[PLOT_COLOURS] = {
        "", "M0,3h6", "M0,0l6,6M-1,5l2,2M5,-1l2,2", "M3,0v6", "M0,6l6,-6M-1,1l2,-2M5,7l2,-2", "M0,3h6M3,0v6", "M2,3h2"};
    for (int k = 0; k < PLOT_COLOURS; k++)
        fprintf(out,
                "<pattern id=\"hatch%d\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
                "<rect width=\"6\" height=\"6\" class=\"f%d\"/><path d=\"M0,0%s\" "
                "style=\"stroke:var(--paper);stroke-width:.9;stroke-opacity:.45;fill:none\"/></pattern>\n",
                k, k, lines[k]);
}
