/* The house rules: who may include whom, which library is seen where, how long functions and files
 * may be. */
#include "tests/harness/harness.h"

#include <dirent.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An include of "TO..." or <TO...> by a file under FROM is wrong, unless the file's path begins
 * with EXCEPT. */
static const struct {
    const char *from, *to, *except;
} forbidden[] = {
    {"engine/", "transport/", NULL},
    {"engine/", "modes/", NULL},
    {"engine/", "lab/", NULL},
    {"engine/", "cli/", NULL},
    {"engine/base/", "engine/", "engine/base/"},
    {"engine/device/", "engine/model/", NULL},
    {"engine/device/", "engine/config/", NULL},
    {"engine/model/", "engine/train/", NULL},
    {"engine/model/", "engine/save/", NULL},
    {"engine/model/", "engine/settings/", NULL},
    {"engine/model/", "engine/data/", NULL},
    {"engine/data/", "engine/train/", NULL},
    {"engine/data/", "engine/model/", NULL},
    {"engine/optim/", "engine/train/", NULL},
    {"engine/save/", "engine/train/", NULL},
    {"engine/save/", "engine/settings/", NULL},
    {"engine/save/", "engine/tell/", NULL},
    {"engine/optim/", "engine/device/", NULL},
    {"engine/device/", "engine/optim/", "engine/device/cuda/update.cu"},
    {"engine/tell/", "engine/train/", NULL},
    {"engine/settings/", "engine/train/", NULL},
    {"transport/", "engine/model/", NULL},
    {"transport/", "engine/data/", NULL},
    {"transport/", "engine/train/", NULL},
    {"transport/", "engine/optim/", NULL},
    {"transport/", "engine/config/", NULL},
    {"transport/", "modes/", NULL},
    {"transport/", "lab/", NULL},
    {"transport/", "cli/", NULL},
    {"modes/", "lab/", NULL},
    {"modes/", "cli/", NULL},
    {"lab/", "cli/", NULL},
    {"modes/", "transport/link/", NULL},
    {"modes/", "transport/algo/", NULL},
    {"", "yaml.h", "engine/config/"},
    {"engine/", "nng/", NULL},
    {"modes/", "nng/", NULL},
    {"cli/", "nng/", NULL},
    {"transport/algo/", "nng/", NULL},
    {"transport/launch/", "nng/", NULL},
    {"transport/group", "nng/", NULL},
    {"transport/link/", "nng/", "transport/link/tcp"},
    {"engine/", "openssl/", "engine/base/"},
    {"engine/", "openssl/ssl", NULL},                 /* libssl is transport's, libcrypto engine/base's */
    {"transport/", "openssl/", "transport/door/tls"}, /* with the few words of libcrypto that it needs */
    {"modes/", "openssl/", NULL},
    {"lab/", "openssl/", NULL},
    {"cli/", "openssl/", NULL},
    {"", "mpi.h", "transport/link/mpi/"},
    {"", "zlib.h", "engine/data/"},
    {"", "jpeglib.h", "engine/data/image.c"},
    {"", "png.h", "engine/data/image.c"},
    {"", "webp/", "engine/data/webp.c"},
    {"", "cuda_", "engine/device/cuda/"},
    {"", "cublas", "engine/device/cuda/"},
    {"", "cudnn", "engine/device/cuda/"},
    {"engine/model/", "engine/device/cuda/", NULL},
    {"engine/train/", "engine/device/cuda/", NULL},
    {"engine/tell/", "engine/device/cuda/", NULL},
    {"engine/save/", "engine/device/cuda/", NULL},
    {"transport/", "engine/device/cuda/", NULL},
    {"modes/", "engine/device/cuda/", NULL},
    {"lab/", "engine/device/cuda/", NULL},
    {"cli/", "engine/device/cuda/", NULL},
    {"", "nccl.h", "transport/carrier/nccl"},
};
/* Floors: a file of a house's room includes what stands in that room and in those before it. A room's name may begin
 * another one's, and the longest counts. */
enum { ROOMS_MOST = 12 };
static const struct {
    const char *house, *rooms[ROOMS_MOST];
} floors[] = {
    {"engine/", {"base/", "config/", "optim/", "device/", "model/", "data/", "save/", "settings/", "tell/", "train/"}},
    {"transport/",
     {"base/", "door/", "store/", "link/", "algo/", "flight/rec", "", "launch/"}}, /* "": the group, and the rest */
    {"lab/",
     {"numbers/", "draw/", "results/", "process/", "experiment/", "predict/", "compare/", "runner/", "report/",
      "advise/", "lesson/", "check/"}},
};
static const char *const folders[] = {"engine", "transport", "modes", "lab", "cli"};

enum { FUNCTION_MOST = 80, FILE_MOST = 500, MODE_MOST = 300, FUNCTIONS = 20000 };
static int lengths[FUNCTIONS], functions, wrong;

static void complain(const char *path, int line, const char *what, const char *detail) {
    print_error("%s:%d: %s%s\n", path, line, what, detail);
    wrong++;
}

/* engine/base is included by all of engine/: only its own includes of other folders are wrong. */
static bool allowed(const char *path, const char *target, size_t rule) {
    if (forbidden[rule].except && !strncmp(path, forbidden[rule].except, strlen(forbidden[rule].except)))
        return strcmp(forbidden[rule].to, "engine/") != 0 || !strncmp(target, "engine/base/", 12);
    return false;
}

/* The floor of a path in a house; -1: it is outside of the house, or of all its rooms. */
static int floor_of(const char *path, size_t house) {
    size_t n = strlen(floors[house].house), longest = 0;
    int floor = -1;
    if (strncmp(path, floors[house].house, n) != 0) return -1;
    for (int i = 0; i < ROOMS_MOST && floors[house].rooms[i]; i++) {
        size_t length = strlen(floors[house].rooms[i]);
        if (strncmp(path + n, floors[house].rooms[i], length) || (floor >= 0 && length <= longest)) continue;
        floor = i, longest = length;
    }
    return floor;
}

static void check_include(const char *path, int line, const char *text) {
    const char *open = strpbrk(text, "\"<");
    if (!open) return;
    const char *target = open + 1;
    if (!strncmp(target, "engine/plugin.h", 15)) return; /* which plug-ins include, and which includes nothing */
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        const char *from = forbidden[i].from, *to = forbidden[i].to;
        if (strncmp(path, from, strlen(from)) || strncmp(target, to, strlen(to))) continue;
        if (!strcmp(to, "engine/") && !strncmp(target, "engine/base/", 12)) continue;
        if (!allowed(path, target, i)) complain(path, line, "may not include ", text);
    }
    for (size_t house = 0; house < sizeof floors / sizeof *floors; house++)
        if (floor_of(path, house) >= 0 && floor_of(target, house) > floor_of(path, house))
            complain(path, line, "may not include a higher floor's ", text);
}

/* clang gives what chooses a kernel the kernel's name, and shows it to the whole program. */
static void check_kernel(const char *path, int line, const char *text) {
    enum { KERNELS = 1024, NAME = 64 };
    static char names[KERNELS][NAME];
    static int count;
    size_t end = strcspn(text, "("), begin = end;
    while (begin > 0 && text[begin - 1] != ' ' && text[begin - 1] != '*') begin--;
    if (!text[end] || end - begin >= NAME || count == KERNELS) return;
    snprintf(names[count], NAME, "%.*s", (int)(end - begin), text + begin);
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], names[count])) complain(path, line, "another kernel is called ", names[i]);
    count++;
}

/* ---- circles: a file and its header are one, and must not need themselves through others ---- */

enum { PARTS = 1024, PART_NAME = 64 };
static char part_name[PARTS][PART_NAME];
static bool needs[PARTS][PARTS], reaches[PARTS][PARTS];
static int parts;

/* Hubs and their private parts, and pairs that are one thing in two files: each is one circle, of so
 * many parts, that holds this one. */
static const struct {
    const char *part;
    int size;
} circles[] = {
    {"engine/base/error", 2},       {"engine/base/plugin", 2},         {"engine/config/schema", 2},
    {"engine/data/dataset", 4},     {"engine/device/cpu/gemm", 2},     {"engine/device/cuda/cuda", 2},
    {"engine/device/device", 5},    {"engine/model/graph", 3},         {"engine/model/model", 4},
    {"engine/save/checkpoint", 3},  {"engine/settings/run_config", 4}, {"engine/tell/trace", 2},
    {"engine/train/trainer", 2},    {"transport/carrier/carrier", 3},  {"transport/flight/recorder", 2},
    {"transport/link/tcp", 2},      {"transport/door/door", 2},        {"modes/share/share", 2},
    {"cli/dashboard/dashboard", 2},
};

/* "engine/base/error" of "engine/base/error.h"; -1: too many, or too long. */
static int part_of(const char *path) {
    size_t n = strcspn(path, ".");
    if (n >= PART_NAME) return -1;
    for (int i = 0; i < parts; i++)
        if (strlen(part_name[i]) == n && !strncmp(part_name[i], path, n)) return i;
    if (parts == PARTS) return -1;
    snprintf(part_name[parts], PART_NAME, "%.*s", (int)n, path);
    return parts++;
}

static void note_include(const char *path, const char *text) {
    const char *open = strchr(text, '"');
    char target[256];
    if (!open || sscanf(open + 1, "%255[^\"]", target) != 1 || !strchr(target, '/')) return;
    int from = part_of(path), to = part_of(target);
    if (from < 0 || to < 0)
        complain(path, 0, "too many parts, or a name too long: ", target);
    else if (from != to)
        needs[from][to] = true;
}

static int circle_allowed(int part) {
    for (size_t i = 0; i < sizeof circles / sizeof *circles; i++)
        if (!strcmp(circles[i].part, part_name[part])) return circles[i].size;
    return 0;
}

static void check_circles(void) {
    memcpy(reaches, needs, sizeof needs);
    for (int via = 0; via < parts; via++)
        for (int from = 0; from < parts; from++)
            for (int to = 0; reaches[from][via] && to < parts; to++)
                reaches[from][to] = reaches[from][to] || reaches[via][to];
    for (int i = 0; i < parts; i++) {
        int size = 1, most = circle_allowed(i);
        bool first = reaches[i][i];
        for (int k = 0; k < parts; k++) {
            if (k == i || !reaches[i][k] || !reaches[k][i]) continue;
            size++;
            if (circle_allowed(k) > most) most = circle_allowed(k);
            first = first && k > i;
        }
        if (!first || size <= most) continue;
        complain(part_name[i], size, "is in a circle of includes, of that many parts", "");
        for (int k = 0; k < parts; k++)
            if (reaches[i][k] && reaches[k][i]) print_error("    %s\n", part_name[k]);
    }
}

/* What a mode is asked for stands in struct sharing; its name is for people. Options of 'engine
 * simulate' are words of its own. */
static void check_mode_name(const char *path, int line, const char *text) {
    static const char *const names[] = {"\"single\"", "\"dp\"", "\"ddp\""};
    if (!strncmp(path, "modes/", 6) || !strncmp(path, "cli/advise/", 11)) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(text, "strcmp(") && strstr(text, names[i])) complain(path, line, "compares a mode's name: ", text);
}

static void check_file(const char *path) {
    char full[2048], text[4096];
    snprintf(full, sizeof full, "%s/%s", ENGINE_SOURCE_DIR, path);
    FILE *f = fopen(full, "r");
    assert_non_null(f);
    int line = 0, began = 0;
    while (fgets(text, sizeof text, f)) {
        line++;
        if (!strncmp(text, "#include", 8)) {
            check_include(path, line, text);
            note_include(path, text);
        }
        if (!strncmp(text, "VECTORISED static", 17)) check_kernel(path, line, text);
        check_mode_name(path, line, text);
        bool opens = text[0] != ' ' && text[0] != '}' && text[0] != '#' && strchr(text, '(') && strstr(text, "{\n");
        if (opens || (!strcmp(text, "{\n"))) began = line;
        if (began && !strcmp(text, "}\n")) {
            int length = line - began - 1;
            if (length > FUNCTION_MOST) complain(path, began, "a function of more than 80 lines: ", "");
            if (functions < FUNCTIONS) lengths[functions++] = length;
            began = 0;
        }
    }
    fclose(f);
    int most = !strncmp(path, "modes/", 6) ? MODE_MOST : FILE_MOST;
    if (line > most) complain(path, line, "the file is too long", "");
}

static bool is_source(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".c") || !strcmp(dot, ".h") || !strcmp(dot, ".cu"));
}

/* A limit of time stands in timing_limit (tests/harness/timing.h), so that a busy machine fails no test. */
static void check_test(const char *path) {
    static const char limit[] =
        "(assert_true|check|need)\\(.*(seconds|took|waited|clock_ns\\(\\) - [a-z]+\\)) <=? ?[0-9]";
    char full[2048], text[4096];
    regex_t pattern;
    assert_int_equal(regcomp(&pattern, limit, REG_EXTENDED | REG_NOSUB), 0);
    snprintf(full, sizeof full, "%s/%s", ENGINE_SOURCE_DIR, path);
    FILE *f = fopen(full, "r");
    assert_non_null(f);
    for (int line = 1; fgets(text, sizeof text, f); line++)
        if (regexec(&pattern, text, 0, NULL, 0) == 0)
            complain(path, line, "asserts a time without timing_limit: ", text);
    fclose(f);
    regfree(&pattern);
}

static void walk(const char *folder, void (*check)(const char *path)) {
    char full[2048], path[1024];
    snprintf(full, sizeof full, "%s/%s", ENGINE_SOURCE_DIR, folder);
    DIR *d = opendir(full);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        snprintf(full, sizeof full, "%s/%s", ENGINE_SOURCE_DIR, path);
        if (stat(full, &st) == 0 && S_ISDIR(st.st_mode))
            walk(path, check);
        else if (is_source(e->d_name))
            check(path);
    }
    if (d) closedir(d);
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void house_rules(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) walk(folders[i], check_file);
    assert_true(functions > 300);
    check_circles();
    qsort(lengths, (size_t)functions, sizeof *lengths, compare);
    int median = lengths[functions / 2], nine_in_ten = lengths[functions * 9 / 10];
    print_message("%d functions: median %d lines, nine in ten at most %d, longest %d\n", functions, median, nine_in_ten,
                  lengths[functions - 1]);
    assert_int_equal(wrong, 0);
    assert_true(median <= 12);
    assert_true(nine_in_ten <= 45);
}

static void tests_assert_no_time(void **state) {
    (void)state;
    wrong = 0;
    walk("tests", check_test);
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(house_rules), cmocka_unit_test(tests_assert_no_time)};
    return cmocka_run_group_tests_name("house", tests, NULL, NULL);
}
