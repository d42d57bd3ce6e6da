/* How a cell's runs are started: keys that no configuration of the engine has. */
#include "lab/experiment/impl.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

enum { WORDS_MOST = 128, HOSTS_MOST = 64 };
static const char *const names[] = {"command", "env", "under", "hosts"};

/* ---- lists of words ---- */

static const char **start_new_list(struct experiment_reader *r, int n) {
    return pool_alloc(r->x->pool, ((size_t)n + 1) * sizeof(const char *));
}

/* Each item of a list, as it is; NULL after an error. */
static const char *const *start_read_list(struct experiment_reader *r, const struct node *at, int most) {
    bool good = at->kind == NODE_LIST && at->count > 0 && at->count <= most;
    const char **words = good ? start_new_list(r, at->count) : NULL;
    for (int i = 0; words && i < at->count; i++) {
        good &= at->items[i]->kind == NODE_SCALAR && *at->items[i]->text;
        words[i] = at->items[i]->text;
    }
    if (!good) config_error(r->e, at, false, "'%s' is a text, or a list of 1 to %d words", at->key, most);
    return good ? words : NULL;
}

/* A text is cut at its spaces: no shell reads it. */
static const char *const *start_read_words(struct experiment_reader *r, const struct node *at) {
    if (at->kind != NODE_SCALAR) return start_read_list(r, at, WORDS_MOST);
    const char **words = start_new_list(r, WORDS_MOST);
    int n = 0;
    for (const char *text = at->text + strspn(at->text, " "); words && *text && n < WORDS_MOST;) {
        size_t k = strcspn(text, " ");
        words[n++] = pool_strndup(r->x->pool, text, k);
        text += k + strspn(text + k, " ");
    }
    if (n == 0 || n == WORDS_MOST || strpbrk(at->text, "\"'\\"))
        config_error(r->e, at, false,
                     "'%s' is words with spaces between them, or a list of words\nfor example %s: [nice, -n, 5]",
                     at->key, at->key);
    return words;
}

static const char *const *start_read_command(struct experiment_reader *r, const struct node *at) {
    if (at->kind == NODE_LIST) return start_read_list(r, at, WORDS_MOST);
    const char **words = start_new_list(r, 3);
    if (at->kind != NODE_SCALAR || !*at->text) {
        config_error(r->e, at, false,
                     "'command' is a text for the shell, or a list of words\nfor example command: \"python "
                     "train.py --seed $ENGINE_SEED\"");
        return NULL;
    }
    if (words) words[0] = "/bin/sh", words[1] = "-c", words[2] = at->text;
    return words;
}

/* ---- variables and hosts ---- */

static bool is_variable(const char *name) {
    if (!isalpha((unsigned char)*name) && *name != '_') return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_') return false;
    return true;
}

static const char *const *read_variables(struct experiment_reader *r, const struct node *at) {
    const char **list = at->kind == NODE_MAP ? start_new_list(r, at->count) : NULL;
    if (at->kind != NODE_MAP)
        config_error(r->e, at, false, "'env' is a map of variables\nfor example env: {BACKEND: gloo}");
    for (int i = 0; list && i < at->count; i++) {
        const struct node *item = at->items[i];
        if (item->kind != NODE_SCALAR || !is_variable(item->key))
            config_error(r->e, item, false, "env: '%.60s' needs a name of letters, digits and _, and a text",
                         item->key);
        else if (!(list[i] = pool_printf(r->x->pool, "%s=%s", item->key, item->text)))
            return NULL;
        else if (!strncmp(item->key, "ENGINE_", 7))
            config_error(r->e, item, true, "env: names that begin with ENGINE_ are reserved for the experiment");
    }
    return list;
}

/* Names that are no options of ssh. */
static const char *const *read_hosts(struct experiment_reader *r, const struct node *at, int *n) {
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";
    const char *const *hosts = start_read_list(r, at, HOSTS_MOST);
    *n = hosts ? at->count : 0;
    for (int i = 0; i < *n; i++)
        if (*hosts[i] == '-' || hosts[i][strspn(hosts[i], good)])
            config_error(r->e, at->items[i], false, "'%.60s' is no name of a host\nas in user@node1 or 10.0.0.2",
                         hosts[i]);
    return hosts;
}

/* A text, which is to blame where the hosts stand. */
static enum error start_put_text(struct experiment_reader *r, const struct node *hosts, struct node *tree,
                                 const char *path, const char *text) {
    struct node value = *hosts;
    value.kind = NODE_SCALAR, value.text = text, value.items = NULL, value.count = 0;
    return text ? tree_put(tree, path, &value, r->x->pool, r->e) : ERR_MEMORY;
}

/* They are nodes of one run (docs/distributed.md), which meet at the first. */
static enum error put_hosts(struct experiment_reader *r, const struct node *hosts, const struct experiment_start *s,
                            struct node *tree) {
    const struct node *run = node_get(tree, "run");
    bool master = run && node_get(run, "master");
    TRY(start_put_text(r, hosts, tree, "run.nodes", pool_printf(r->x->pool, "%d", s->nhosts)));
    const char *at = strrchr(s->hosts[0], '@');
    return master ? ERR_NONE : start_put_text(r, hosts, tree, "run.master", at ? at + 1 : s->hosts[0]);
}

/* ---- all ---- */

enum error experiment_put(struct experiment_reader *r, struct node *tree, const struct node *value, const char *key) {
    if (strcmp(key, "env") != 0 || value->kind != NODE_MAP) return tree_put(tree, key, value, r->x->pool, r->e);
    for (int i = 0; i < value->count; i++) {
        const struct node *item = value->items[i];
        char *path = pool_printf(r->x->pool, "env.%s", item->key);
        if (!path) return ERR_MEMORY;
        TRY(tree_put(tree, path, item, r->x->pool, r->e));
    }
    return ERR_NONE;
}

static bool start_is_ours(const char *key) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], key)) return true;
    return false;
}

static struct node *start_tree_split(struct experiment_reader *r, struct node *tree) {
    struct node *keys = pool_alloc(r->x->pool, sizeof *keys);
    struct node **items = pool_alloc(r->x->pool, ((size_t)tree->count + 1) * sizeof *items);
    int left = 0;
    if (!keys || !items) return NULL;
    *keys = (struct node){.kind = NODE_MAP, .items = items, .source = tree->source};
    for (int i = 0; i < tree->count; i++)
        if (start_is_ours(tree->items[i]->key))
            keys->items[keys->count++] = tree->items[i];
        else
            tree->items[left++] = tree->items[i];
    tree->count = left;
    return keys;
}

enum error experiment_start_take(struct experiment_reader *r, struct node *tree, struct experiment_start *out) {
    struct node *keys = start_tree_split(r, tree);
    *out = (struct experiment_start){.keys = keys};
    if (!keys) return ERR_MEMORY;
    const struct node *command = node_get(keys, "command"), *env = node_get(keys, "env");
    const struct node *under = node_get(keys, "under"), *hosts = node_get(keys, "hosts");
    if (command) out->command = start_read_command(r, command);
    if (env) out->variables = read_variables(r, env);
    if (under) out->under = start_read_words(r, under);
    if (hosts) out->hosts = read_hosts(r, hosts, &out->nhosts);
    if (command && hosts)
        config_error(r->e, hosts, true,
                     "'hosts' starts the engine on several hosts; a command must start its own processes\nfor example "
                     "command: torchrun --nnodes 2 ..., or under: srun -N 2");
    return out->nhosts && !command ? put_hosts(r, hosts, out, tree) : ERR_NONE;
}

/* ---- what a command's words name ---- */

static char *start_add_file(const struct experiment *x, char *list, const char *word, size_t n) {
    struct stat st;
    while (n && strchr("\"'(){}<>;=", *word)) word++, n--;
    while (n && strchr("\"'(){};", word[n - 1])) n--;
    char *path = pool_printf(x->pool, "%s%s%.*s", *word == '/' ? "" : x->folder, *word == '/' ? "" : "/", (int)n, word);
    if (!path || n == 0 || n > 4096 || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return path ? list : NULL;
    return pool_printf(x->pool, "%s%.*s %lld %lld.%09ld\n", list, (int)n, word, (long long)st.st_size,
                       (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

char *experiment_start_files(const struct experiment *x, const struct experiment_start *s) {
    char *list = pool_printf(x->pool, "%s", "");
    bool shell = s->command && s->command[0] && !strcmp(s->command[0], "/bin/sh");
    for (int i = 0; list && s->command && s->command[i]; i++) {
        if (!shell) list = start_add_file(x, list, s->command[i], strlen(s->command[i]));
        for (const char *text = s->command[i]; shell && list && *text;) {
            text += strspn(text, " \t\n|&;");
            size_t n = strcspn(text, " \t\n|&;");
            list = start_add_file(x, list, text, n);
            text += n;
        }
    }
    return list;
}
