#include "tests/harness/browser.h"

#include "tests/harness/program.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *in_path(const char *name) {
    static char found[512];
    const char *path = getenv("PATH");
    for (const char *p = path ? path : ""; *p; p += strcspn(p, ":"), p += *p == ':') {
        snprintf(found, sizeof found, "%.*s/%s", (int)strcspn(p, ":"), p, name);
        if (access(found, X_OK) == 0) return found;
    }
    return NULL;
}

/* Playwright keeps its own in the user's cache. */
static const char *in_cache(void) {
    static char found[512];
    char pattern[512];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/.cache/ms-playwright/chromium*/chrome-linux*/{chrome,headless_shell}",
             getenv("HOME") ? getenv("HOME") : "");
    if (glob(pattern, GLOB_BRACE, NULL, &g) != 0) return NULL;
    snprintf(found, sizeof found, "%s", g.gl_pathv[0]);
    globfree(&g);
    return access(found, X_OK) == 0 ? found : NULL;
}

const char *browser_find(void) {
    static const char *const names[] = {"chromium", "chromium-browser", "google-chrome"};
    const char *found = getenv("ENGINE_BROWSER");
    for (int i = 0; i < 3 && !found; i++) found = in_path(names[i]);
    if (!found) found = in_cache();
    if (!found) print_message("no Chromium on this machine: pages are not looked at\n");
    return found;
}

/* A page that holds the page in a frame, since windows cannot be as narrow as phones, and measures it: as it comes, and
 * with all that is folded opened and every switch the other way. */
static const char measure[] =
    "<html style='color-scheme:light dark'><body><iframe id='f' style='border:0;width:%dpx;height:800px' "
    "src='file://%s'></iframe><script>\n"
    "document.getElementById('f').onload=function(){\n"
    "var w=this.contentWindow,d=w.document,bad=[],shown=new Set();\n"
    "var r={plots:0,hidden:0,outside:0,overlaps:0,least:999,scroll:0};\n"
    "function look(){d.querySelectorAll('svg.plot').forEach(function(s){\n"
    " var b=s.getBoundingClientRect(),k=b.width/s.viewBox.baseVal.width,seen=[];\n"
    " if(!(b.width>0&&b.height>0)||shown.has(s))return;\n"
    " shown.add(s);\n"
    " s.querySelectorAll('text').forEach(function(e){var t=e.getBoundingClientRect();\n"
    "  r.least=Math.min(r.least,parseFloat(w.getComputedStyle(e).fontSize)*k);\n"
    "  if(t.left<b.left-1||t.right>b.right+1||t.top<b.top-1||t.bottom>b.bottom+1)\n"
    "   {r.outside++;bad.push('outside '+e.textContent)}\n"
    "  seen.forEach(function(o){if(t.left<o[0].right-.5&&o[0].left<t.right-.5&&t.top<o[0].bottom-4*k&"
    "&o[0].top<t.bottom-4*k)\n"
    "   {r.overlaps++;bad.push(e.textContent+' over '+o[1])}});\n"
    "  seen.push([t,e.textContent])})});\n"
    " r.scroll=Math.max(r.scroll,d.scrollingElement.scrollWidth)}\n"
    "look();\n"
    "d.querySelectorAll('details').forEach(function(e){e.open=true});\n"
    "d.querySelectorAll('input').forEach(function(e){e.checked=!e.checked});\n"
    "look();\n"
    "d.querySelectorAll('svg.plot').forEach(function(s){r.plots++;if(!shown.has(s))\n"
    " {r.hidden++;bad.push('hidden '+s.querySelector('title').textContent)}});\n"
    "r.inner=w.innerWidth;\n"
    "document.body.textContent='inner='+r.inner+' scroll='+r.scroll+' plots='+r.plots+' hidden='+r.hidden"
    "+' outside='+r.outside+' overlaps='+r.overlaps+' least='+r.least+' bad='+bad.join('; ')}\n"
    "</script></body></html>\n";

static void write_measure(const char *path, const char *file, int width) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, measure, width, file);
    assert_int_equal(fclose(f), 0);
}

static void read_view(const struct program *p, struct browser_view *out) {
    const char *at = strstr(p->out, "<body>inner=");
    if (!at || sscanf(at,
                      "<body>inner=%d scroll=%d plots=%d hidden=%d outside=%d overlaps=%d least=%lf "
                      "bad=%2000[^<]",
                      &out->inner, &out->scroll, &out->plots, &out->hidden, &out->outside, &out->overlaps, &out->least,
                      out->words) < 7)
        fail_msg("the browser says\n%s\n%s", p->out, p->err);
    for (const char *line = p->err; (line = strstr(line, "CONSOLE")); line++) {
        out->complaints++;
        size_t n = strlen(out->words);
        snprintf(out->words + n, sizeof out->words - n, "; %.*s", (int)strcspn(line, "\n"), line);
    }
}

void browser_view(const char *program, const char *file, int width, bool dark, struct browser_view *out) {
    static struct program p;
    char url[600], profile[600], page[512], size[64];
    snprintf(page, sizeof page, "%s", scratch_path("measure.html"));
    snprintf(profile, sizeof profile, "--user-data-dir=%s", scratch_path("browser"));
    snprintf(url, sizeof url, "file://%s", page);
    snprintf(size, sizeof size, "--window-size=%d,900", width < 600 ? 700 : width + 100);
    write_measure(page, file, width);
    memset(out, 0, sizeof *out);
    program_spawn(&p, (const char *const[]){
                          program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                          "--allow-file-access-from-files", "--enable-logging=stderr", profile, size,
                          dark ? "--blink-settings=preferredColorScheme=0" : "--blink-settings=preferredColorScheme=1",
                          "--dump-dom", url, NULL});
    if (!program_wait(&p, 90)) fail_msg("the browser did not answer:\n%s", p.err);
    read_view(&p, out);
}

const char *browser_dom(const char *program, const char *url) {
    static struct program p;
    char profile[600];
    snprintf(profile, sizeof profile, "--user-data-dir=%s", scratch_path("profile"));
    program_spawn(&p, (const char *const[]){program, "--headless", "--no-sandbox", "--disable-gpu",
                                            "--enable-logging=stderr", "--window-size=1400,1000",
                                            "--virtual-time-budget=4000", "--dump-dom", profile, url, NULL});
    assert_true(program_wait(&p, 120));
    if (strstr(p.err, "CONSOLE")) fail_msg("%s", strstr(p.err, "CONSOLE"));
    return p.out;
}
