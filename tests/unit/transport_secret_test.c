/* The secret: where it is found, that a short one is refused, that it does not stay in the
 * environment, and what key is made of it. */
#include "tests/harness/harness.h"

#include "engine/base/digest.h"
#include "transport/launch/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define GOOD "0123456789abcdef"
static struct pool *pool;
extern char **environ;

static int set_up(void **state) {
    (void)state;
    unsetenv(TOKEN_VARIABLE);
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static const char *find(const char *spec) {
    const char *secret;
    assert_ok(token_find(spec, pool, &secret));
    return secret;
}

static void refused(const char *spec, const char *why) {
    const char *secret;
    assert_fails(ERR_CONFIG, token_find(spec, pool, &secret));
    if (!strstr(error_message(), why)) fail_msg("%s: '%s'", why, error_message());
}

static void where_it_is(void **state) {
    char spec[600];
    (void)state;
    assert_string_equal(find("auto"), "");
    assert_string_equal(find("none"), "none");
    setenv(TOKEN_VARIABLE, GOOD "1", 1);
    setenv("OWN", GOOD "2", 1);
    assert_string_equal(find("auto"), SECRET_CHOSEN GOOD "1");
    assert_string_equal(find("env:OWN"), SECRET_CHOSEN GOOD "2");
    assert_string_equal(find(GOOD "3"), SECRET_CHOSEN GOOD "3");
    unsetenv("OWN");
    refused("env:OWN", "OWN is not set");
    assert_true(strstr(error_hint(), "it is in no file of the run"));
    snprintf(spec, sizeof spec, "file:%s", scratch_path("secret"));
    save_text(spec + 5, GOOD "4\n");
    assert_int_equal(chmod(spec + 5, 0640), 0);
    refused(spec, "others may read");
    assert_int_equal(chmod(spec + 5, 0600), 0);
    assert_string_equal(find(spec), SECRET_CHOSEN GOOD "4");
}

static void short_ones_are_refused(void **state) {
    char most[SECRET_MAX + 2];
    (void)state;
    refused("0123456789abcde", "15 characters");
    assert_true(strstr(error_hint(), "openssl rand -hex 16"));
    setenv(TOKEN_VARIABLE, "a", 1);
    refused("auto", "1 characters");
    memset(most, 'x', sizeof most);
    most[SECRET_MAX + 1] = '\0';
    refused(most, "longer than 256");
    most[SECRET_MAX] = '\0';
    assert_int_equal(strlen(find(most)), SECRET_MAX + strlen(SECRET_CHOSEN));
}

/* Not even where the environment's text lies, which /proc shows. */
static void it_leaves_the_environment(void **state) {
    const char *secret;
    (void)state;
    static char text[] = TOKEN_VARIABLE "=" GOOD;
    assert_int_equal(putenv(text), 0);
    assert_ok(token_inherited(pool, &secret));
    assert_string_equal(secret, GOOD); /* as it was told */
    assert_null(getenv(TOKEN_VARIABLE));
    assert_int_equal(text[sizeof TOKEN_VARIABLE], '\0');
    assert_ok(token_inherited(pool, &secret));
    assert_string_equal(secret, "");
    setenv("OWN", GOOD, 1);
    token_forget("env:OWN");
    assert_null(getenv("OWN"));
    token_forget("none");
}

/* A chosen secret is made slow; others are their own keys, at once. */
static void keys(void **state) {
    static const char salt[] = "engine: a secret that a person chose";
    char a[SECRET_SIZE], b[SECRET_SIZE];
    uint8_t key[SHA256_BYTES];
    char random[SECRET_SIZE];
    (void)state;
    assert_ok(secret_random(random));
    assert_int_equal(strlen(random), 32);
    clock_t start = clock();
    assert_ok(secret_key(random, a));
    assert_string_equal(a, random);
    assert_ok(secret_key("none", a));
    assert_string_equal(a, "none");
    assert_true(clock() - start < CLOCKS_PER_SEC / 100);
    assert_ok(secret_key(SECRET_CHOSEN GOOD, a));
    assert_ok(scrypt_key(SECRET_CHOSEN GOOD, salt, sizeof salt - 1, key));
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(b + 2 * i, 3, "%02x", key[i]);
    assert_string_equal(a, b);
    assert_ok(secret_key(SECRET_CHOSEN GOOD "0", b));
    assert_string_not_equal(a, b);
    assert_ok(secret_key(SECRET_CHOSEN GOOD, b));
    assert_string_equal(a, b);
    start = clock();
    assert_ok(secret_key(b, b)); /* in place, and a key stays one */
    assert_ok(secret_key(SECRET_CHOSEN GOOD, b));
    assert_true(clock() - start < CLOCKS_PER_SEC / 100); /* remembered */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {TEST(where_it_is), TEST(short_ones_are_refused), TEST(it_leaves_the_environment),
                                       TEST(keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
