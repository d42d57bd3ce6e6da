/* The request's head, read strictly: what is not exactly a GET of something that is there, asked by
 * somebody who calls this server by one of its own names, is refused. A page of another site whose
 * name was pointed at this address (DNS rebinding) comes with that name in Host, and gets nothing.
 */
#include "cli/dashboard/impl.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *path;
    enum http_page page;
} pages[] = {{"/", HTTP_PAGE},
             {"/api/runs", HTTP_RUNS},
             {"/api/run", HTTP_RUN},
             {"/api/ranks", HTTP_RANKS},
             {"/api/metrics", HTTP_METRICS}};

size_t http_head_end(const char *in, size_t n) {
    const char *end = memmem(in, n, "\r\n\r\n", 4);
    return end ? (size_t)(end - in) + 4 : 0;
}

const char *http_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } all[] = {{200, "OK"},
               {400, "Bad Request"},
               {403, "Forbidden"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].status == status) return all[i].reason;
    return "";
}

/* ---- the first line ---- */
static bool http_read_since(const char *text, size_t n, int64_t *since) {
    enum { DIGITS = 15 };
    if (n == 0 || n > DIGITS) return false;
    *since = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isdigit((unsigned char)text[i])) return false;
        *since = *since * 10 + (text[i] - '0');
    }
    return true;
}

static bool http_read_id(const char *text, size_t n, char run[LISTED_ID]) {
    if (n != LISTED_ID - 1 || *run) return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789abcdef", text[i]) || !text[i]) return false;
    memcpy(run, text, n);
    return true;
}

/* run=ID, or since=N, or both in this order. */
static bool http_read_query(const char *text, size_t n, struct http_request *out) {
    const char *more = memchr(text, '&', n);
    size_t first = more ? (size_t)(more - text) : n;
    if (first > 4 && !memcmp(text, "run=", 4)) {
        if (out->page == HTTP_RUNS || !http_read_id(text + 4, first - 4, out->run)) return false;
        if (!more) return true;
        text += first + 1, n -= first + 1;
    }
    return (out->page == HTTP_METRICS || out->page == HTTP_RUNS) && n > 6 && !memcmp(text, "since=", 6) &&
           http_read_since(text + 6, n - 6, &out->since);
}

/* No path is ever looked for on a disk: there are these five, and runs have ids. */
static int http_read_target(const char *text, size_t n, struct http_request *out) {
    const char *query = memchr(text, '?', n);
    size_t path = query ? (size_t)(query - text) : n;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strlen(pages[i].path) != path || memcmp(pages[i].path, text, path) != 0) continue;
        *out = (struct http_request){.page = pages[i].page};
        if (!query) return 200;
        return http_read_query(query + 1, n - path - 1, out) ? 200 : 400;
    }
    return 404;
}

static int http_read_first_line(const char *line, size_t n, struct http_request *out, const char **wrong) {
    const char *target = memchr(line, ' ', n), *version = memrchr(line, ' ', n);
    *wrong = "not a request";
    if (!target || version == target || target == line) return 400;
    size_t rest = n - (size_t)(version - line);
    if (rest != 9 || memcmp(version, " HTTP/", 6) != 0) return 400;
    *wrong = "HTTP/1.1 is spoken here";
    if (memcmp(version, " HTTP/1.", 8) != 0) return 505;
    *wrong = "only GET";
    if (target - line != 3 || memcmp(line, "GET", 3) != 0) return 405;
    *wrong = "there is /, /api/runs?since=N, /api/run, /api/ranks and /api/metrics?since=N";
    return http_read_target(target + 1, (size_t)(version - target) - 1, out);
}

/* ---- its other lines ---- */
struct headers {
    const char *host;
    size_t nhost;
    int hosts;
    bool body, other_site;
};

/* Host without its port; an address in brackets without them. */
static bool http_cut_port(const char **host, size_t *n) {
    const char *end = *host + *n, *colon;
    if (*n && **host == '[') {
        const char *close = memchr(*host, ']', *n);
        if (!close) return false;
        colon = close + 1;
        (*host)++;
        *n = (size_t)(close - *host);
    } else {
        colon = memchr(*host, ':', *n);
        if (!colon) return true;
        *n = (size_t)(colon - *host);
    }
    if (colon == end) return true;
    if (*colon != ':') return false;
    for (colon++; colon < end; colon++)
        if (!isdigit((unsigned char)*colon)) return false;
    return true;
}

static bool http_host_is_ours(const char *host, size_t n, const struct http_rules *rules) {
    char name[256];
    unsigned char address[16];
    const char *ours[] = {"localhost", rules->name, rules->host};
    if (!http_cut_port(&host, &n) || n == 0 || n >= sizeof name || memchr(host, '\0', n)) return false;
    memcpy(name, host, n);
    name[n] = '\0';
    if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
        return true; /* an address is no name, so no other site can have pointed it here */
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i] && !strcasecmp(name, ours[i])) return true;
    return false;
}

/* Whether the header's name, the first 'name' bytes of the line, is the wanted one; the case does not matter. */
static bool http_is_named(const char *line, size_t name, const char *wanted) {
    return strlen(wanted) == name && !strncasecmp(line, wanted, name);
}

static bool read_header(const char *line, size_t n, struct headers *h) {
    const char *colon = memchr(line, ':', n);
    size_t name = colon ? (size_t)(colon - line) : 0;
    if (name == 0) return false;
    for (size_t i = 0; i < name; i++)
        if (!isalnum((unsigned char)line[i]) && !strchr("!#$%&'*+-.^_`|~", line[i])) return false;
    const char *value = colon + 1, *end = line + n;
    while (value < end && (*value == ' ' || *value == '\t')) value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
    size_t length = (size_t)(end - value);
    if (http_is_named(line, name, "Host")) h->host = value, h->nhost = length, h->hosts++;
    h->body |= http_is_named(line, name, "Transfer-Encoding") ||
               (http_is_named(line, name, "Content-Length") && (length != 1 || *value != '0'));
    h->other_site |= http_is_named(line, name, "Sec-Fetch-Site") && http_is_named(value, length, "cross-site");
    return true;
}

static bool http_is_clean(const char *head, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)head[i];
        bool line_end = (c == '\r' && i + 1 < n && head[i + 1] == '\n') || (c == '\n' && i > 0 && head[i - 1] == '\r');
        if (!line_end && c != '\t' && (c < ' ' || c > '~')) return false;
    }
    return true;
}

static int check_headers(const struct headers *h, const struct http_rules *rules, enum http_page page,
                         const char **wrong) {
    *wrong = "a request has one Host";
    if (h->hosts != 1) return 400;
    *wrong = "a GET has no body";
    if (h->body) return 400;
    *wrong = "this server does not have that name: use its address, or localhost";
    if (!http_host_is_ours(h->host, h->nhost, rules)) return 403;
    *wrong = "not for pages of other sites";
    return h->other_site && page != HTTP_PAGE ? 403 : 200;
}

/* The length of the line up to its "\r\n", which the head is known to have. */
static size_t http_line_length(const char *line) {
    size_t n = 0;
    while (line[n] != '\r') n++;
    return n;
}

int http_read(const char *head, size_t n, const struct http_rules *rules, struct http_request *out,
              const char **wrong) {
    *out = (struct http_request){.page = HTTP_PAGE};
    *wrong = "not a request";
    if (n == 0 || http_head_end(head, n) != n || !http_is_clean(head, n)) return 400;
    const char *last = head + n - 2; /* the empty line */
    struct headers h = {0};
    size_t first = http_line_length(head), length;
    for (const char *at = head + first + 2; at < last; at += length + 2) {
        length = http_line_length(at);
        if (!read_header(at, length, &h)) return 400;
    }
    int status = http_read_first_line(head, first, out, wrong);
    return status == 200 ? check_headers(&h, rules, out->page, wrong) : status;
}
