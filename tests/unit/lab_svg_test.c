/* Plots: well-formed whatever they hold, the same text for the same numbers, nothing outside its frame. */
#include "tests/harness/harness.h"
#include "tests/harness/xml.h"

#include "engine/base/file.h"
#include "lab/draw/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct file_text out;

/* What has been written since it was begun. */
static const char *written(void) {
    fflush(out.out);
    return out.text;
}

static void begin_again(void) {
    if (out.out) assert_ok(file_text_close(&out, ERR_NONE));
    free(out.text);
    assert_ok(file_text_open(&out));
}
static struct pool *pool;

static int set_up(void **state) {
    (void)state;
    begin_again();
    assert_ok(pool_create(&pool));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    assert_ok(file_text_close(&out, ERR_NONE));
    free(out.text);
    out = (struct file_text){0};
    pool_free(pool);
    return 0;
}

/* ---- plots to try --------------------------------------------------------------------------- */

static const char long_name[] =
    "a very long name that can never fit into a plot of this width, whatever the letters <&>\"'";
static const double x4[] = {1, 2, 4, 8}, y4[] = {0.5, 3, 2, (double)NAN}, z4[] = {4e6, 1e-3, 2e9, 17};
static const double low4[] = {0.4, 2, 1, 0}, high4[] = {0.6, 4, 3, 0};
static struct plot_series series[4];
static const char *names[] = {"rank 0", long_name, "\xFF\x01<svg>", "\xC3\xA9t\xC3\xA9"};
static struct plot_span spans[] = {{0, 0, 0.001, 0.002}, {1, 1, 0.0015, 0.5}, {3, 2, 0.5, 0.5}};

static const enum plot_won won4[] = {PLOT_SECOND, PLOT_FIRST, PLOT_SAME, PLOT_UNTOLD};

static struct plot example(enum plot_kind kind) {
    series[0] = (struct plot_series){.name = "dp", .x = x4, .y = y4, .low = low4, .high = high4, .n = 4};
    series[1] = (struct plot_series){.name = long_name, .x = x4, .y = z4, .n = 4, .colour = 1};
    series[2] = (struct plot_series){.name = "dp, model", .x = x4, .y = z4, .n = 4, .colour = 9, .model = true};
    series[3] = (struct plot_series){.name = "<&>", .x = x4, .y = y4, .n = 1, .colour = 3, .points = true};
    series[3].from = low4, series[3].to = high4;
    for (int i = 0; i < 4; i++) series[i].won = won4;
    return (struct plot){.kind = kind,
                         .title = long_name,
                         .about = "]]> & \x02",
                         .x = {.label = "devices", .unit = PLOT_SECONDS, .zero = true},
                         .y = {.label = long_name, .unit = PLOT_BYTES},
                         .series = series,
                         .nseries = 4,
                         .category = names,
                         .ncategories = 4,
                         .span = spans,
                         .nspans = 3,
                         .who = {"dp", long_name}};
}

/* ---- what is checked of each ----------------------------------------------------------------- */

static double attribute(const char *tag, const char *name) {
    const char *at = strstr(tag, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

/* The text of a <text> without entities, which are one character each. */
static double width_of(const char *from, const char *to) {
    char text[1024];
    size_t n = 0;
    while (from < to && n + 1 < sizeof text) {
        text[n++] = *from == '&' ? 'M' : *from;
        from = *from == '&' ? strchr(from, ';') + 1 : from + 1;
    }
    text[n] = '\0';
    return plot_text_width(text);
}

static void check_text(const char *tag, double height) {
    const char *body = strchr(tag, '>') + 1, *end = strchr(body, '<');
    double x = attribute(tag, " x=\""), y = attribute(tag, " y=\""), width = width_of(body, end);
    const char *anchor = strstr(tag, "text-anchor=\"") + 13;
    double left = *anchor == 's' ? x : *anchor == 'm' ? x - width / 2 : x - width;
    if (left < -0.5 || left + width > PLOT_WIDTH + 0.5)
        fail_msg("'%.*s' reaches from %.1f to %.1f", (int)(end - body), body, left, left + width);
    assert_true(y >= SVG_TEXT / 2. && y <= height);
}

static void check_rect(const char *tag, double height) {
    double x = attribute(tag, " x=\""), width = attribute(tag, " width=\"");
    double y = attribute(tag, " y=\""), tall = attribute(tag, " height=\"");
    assert_true(x >= 0 && width >= 0 && x + width <= PLOT_WIDTH + 0.5);
    assert_true(y >= 0 && tall > 0 && y + tall <= height);
}

/* Draws it; all text and all bars lie in the frame. */
static void check(const struct plot *p) {
    begin_again();
    double height = 0;
    assert_ok(plot_svg(p, &height, out.out));
    const char *wrong = xml_wrong(written());
    if (wrong) fail_msg("%s in:\n%s", wrong, written());
    assert_true(height > 40 && !strstr(written(), "nan") && !strstr(written(), "inf\""));
    for (const char *t = written(); (t = strstr(t, "<text ")); t++) check_text(t, height);
    for (const char *t = written(); (t = strstr(t, "<rect ")); t++) check_rect(t, height);
    assert_non_null(strstr(written(), "<title>"));
    assert_non_null(strstr(written(), "<desc>"));
}

static void every_kind_is_well_formed_and_in_its_frame(void **state) {
    (void)state;
    for (int kind = PLOT_LINE; kind < PLOT_KINDS; kind++) {
        struct plot p = example((enum plot_kind)kind);
        check(&p);
        char *first = strdup(written());
        check(&p);
        assert_string_equal(first, written());
        free(first);
        p.x.log = p.y.log = true;
        check(&p);
    }
}

static void plots_of_next_to_nothing_are_plots(void **state) {
    (void)state;
    static const double none[] = {(double)NAN, (double)INFINITY, (double)-INFINITY, (double)NAN}, one[] = {7, 7, 7, 7},
                        zero[] = {0, 0, 0, 0};
    const double *const values[] = {none, one, zero};
    for (int kind = PLOT_LINE; kind < PLOT_KINDS; kind++)
        for (int v = 0; v < 3; v++)
            for (int n = 0; n <= 4; n += 2) {
                struct plot p = example((enum plot_kind)kind);
                for (int i = 0; i < 4; i++) series[i].y = values[v], series[i].n = n;
                series[0].low = series[0].high = NULL;
                p.ncategories = kind == PLOT_TIMELINE ? 4 : n;
                p.nspans = n == 0 ? 0 : 3;
                check(&p);
            }
}

static void sixty_four_ranks_fit(void **state) {
    (void)state;
    static double y[80];
    static enum plot_won won[80];
    static const char *many[80];
    static struct plot_series columns[64];
    static char words[80][16];
    for (int i = 0; i < 80; i++) {
        y[i] = 1 + i;
        snprintf(words[i], sizeof words[i], "rank %d", i);
        many[i] = words[i];
    }
    for (int i = 0; i < 64; i++) columns[i] = (struct plot_series){.name = words[i] + 5, .y = y, .won = won, .n = 80};
    struct plot p = example(PLOT_MAP);
    p.series = columns;
    p.nseries = 64;
    p.category = many;
    p.ncategories = 80;
    check(&p);
    assert_non_null(strstr(written(), "16 more rows are in the table"));
    p.kind = PLOT_GROUPED;
    p.nseries = 2;
    check(&p);
}

/* ---- scales --------------------------------------------------------------------------------- */

/* By itself, or, where ticks are even, in tenths of its decade's. */
static bool is_round(double v, bool log) {
    double power = pow(10, floor(log10(v) + 1e-9)), part = v / power;
    if (log) return fabs(part - 1) < 1e-6 || fabs(part - 2) < 1e-6 || fabs(part - 5) < 1e-6;
    return fabs(part * 10 - round(part * 10)) < 1e-6;
}

static void ticks_are_round_and_few(void **state) {
    (void)state;
    static const double ratios[] = {1.05, 3, 900, 1e9};
    for (double high = 1e-9; high < 1e13; high *= 1.7)
        for (int k = 0; k < 8; k++) {
            bool log = k % 2;
            double low = high / ratios[k / 2];
            struct plot_axis a = {.label = "x", .zero = !log, .log = log};
            struct scale s = svg_scale(&a, low, high, 0, 300);
            assert_between(s.nticks, 2, 11);
            if (log && k / 2 == 2) assert_true(s.nticks >= 4); /* three decades: 1 and 5 of each */
            assert_true(s.low <= low && s.high >= high);
            for (int i = 0; i < s.nticks; i++) {
                assert_true(s.tick[i] >= s.low - 1e-9 * s.high && s.tick[i] <= s.high * (1 + 1e-9));
                if (i) assert_true(s.tick[i] > s.tick[i - 1]);
                if (s.tick[i] != 0 && k / 2 == 2) assert_true(is_round(s.tick[i], log));
            }
        }
}

static void units_follow_the_size(void **state) {
    (void)state;
    static const struct {
        enum plot_unit unit;
        double most;
        const char *name;
    } cases[] = {{PLOT_SECONDS, 2e-5, "us"}, {PLOT_SECONDS, 0.02, "ms"}, {PLOT_SECONDS, 20, "s"},
                 {PLOT_BYTES, 100, "B"},     {PLOT_BYTES, 5e6, "MB"},    {PLOT_SHARE, 0.5, "%"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plot_axis a = {.label = "x", .unit = cases[i].unit};
        assert_string_equal(svg_scale(&a, 0, cases[i].most, 0, 1).unit, cases[i].name);
    }
    struct plot_axis a = {.label = "step", .unit = PLOT_SECONDS};
    struct scale s = svg_scale(&a, 0.001, 0.009, 100, 200);
    assert_true(fabs(svg_at(&s, s.low / 1e3) - 100) < 1e-9 && fabs(svg_at(&s, s.high / 1e3) - 200) < 1e-9);
}

/* ---- tables --------------------------------------------------------------------------------- */

static void a_plot_has_its_numbers_as_a_table(void **state) {
    (void)state;
    struct table t;
    struct plot p = example(PLOT_LINE);
    p.y.unit = PLOT_PLAIN;
    assert_ok(plot_table(&p, pool, &t));
    assert_int_equal(t.rows, 4);
    assert_string_equal(table_row(&t, 2)[1], "3 [2, 4]");
    assert_string_equal(table_row(&t, 4)[1], "-");
    assert_string_equal(table_row(&t, 4)[2], "17");
    table_html(&t, out.out);
    assert_null(xml_wrong(written()));
    p.kind = PLOT_TIMELINE;
    assert_ok(plot_table(&p, pool, &t));
    assert_string_equal(table_row(&t, 1)[4], "1 ms");
    begin_again();
    p.kind = PLOT_GROUPED;
    p.category = (const char *[]){"a,b", "\"c\"", "d|e", "f"};
    assert_ok(plot_table(&p, pool, &t));
    table_csv(&t, out.out);
    assert_non_null(strstr(written(), ",\"a,b\","));
    assert_non_null(strstr(written(), ",\"\"\"c\"\"\","));
    begin_again();
    table_markdown(&t, out.out);
    assert_non_null(strstr(written(), "| d\\|e |"));
}

static void text_is_escaped(void **state) {
    (void)state;
    markup_text(out.out, "<a href=\"x\">&'\x01\xFF\xEF\xBF\xBF\xED\xA0\x80\xC3\xA9\n");
    assert_string_equal(written(), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                                   "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xC3\xA9\n");
}

/* The checker finds what it is there for. */
static void wrong_xml_is_found(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "x",
                                        "<a>",
                                        "<a></b>",
                                        "<a/><b/>",
                                        "<a>&x;</a>",
                                        "<a b=c/>",
                                        "<a b=\"<\"/>",
                                        "<a b=\"\" b=\"\"/>",
                                        "<a>\x01</a>",
                                        "<a><b></a></b>"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_non_null(xml_wrong(wrong[i]));
    assert_null(xml_wrong("<a b=\"&quot;\">x<c/>&amp;</a>\n"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(every_kind_is_well_formed_and_in_its_frame),
                                       TEST(plots_of_next_to_nothing_are_plots),
                                       TEST(sixty_four_ranks_fit),
                                       TEST(ticks_are_round_and_few),
                                       TEST(units_follow_the_size),
                                       TEST(a_plot_has_its_numbers_as_a_table),
                                       TEST(text_is_escaped),
                                       TEST(wrong_xml_is_found)};
    return cmocka_run_group_tests_name("svg", tests, NULL, NULL);
}
