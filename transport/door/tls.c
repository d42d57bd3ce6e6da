#include "transport/door/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char suite[2] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
static const char identity[] = "engine", label[] = "EXPORTER-engine-session";
enum { FIRST_TYPE = 20, LAST_TYPE = 23 }; /* of records */

struct tls {
    SSL *ssl;
    BIO *in, *out;
    uint8_t key[SHA256_BYTES];
};

/* ---- the key ---- */

static SSL_SESSION *session_of_key(SSL *ssl) {
    const struct tls *t = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *s = SSL_SESSION_new();
    if (s && cipher && SSL_SESSION_set1_master_key(s, t->key, sizeof t->key) && SSL_SESSION_set_cipher(s, cipher) &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
        return s;
    SSL_SESSION_free(s);
    return NULL;
}

/* The dialer's end: offers the key. */
static int key_use(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *n, SSL_SESSION **session) {
    (void)digest; /* the only suite has this one */
    *session = session_of_key(ssl);
    *id = (const unsigned char *)identity;
    *n = sizeof identity - 1;
    return *session != NULL;
}

/* The listener's end: who offers another identity, or none, has no key here, and fails for want of a certificate. */
static int key_find(SSL *ssl, const unsigned char *id, size_t n, SSL_SESSION **session) {
    bool known = n == sizeof identity - 1 && !memcmp(id, identity, n);
    *session = known ? session_of_key(ssl) : NULL;
    return !known || *session;
}

/* ---- one context for all connections of the process ---- */

static SSL_CTX *context;

static void context_create(void) {
    SSL_CTX *c = SSL_CTX_new(TLS_method());
    if (!c) return;
    if (!SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) || !SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") ||
        !SSL_CTX_set1_groups_list(c, "X25519:P-256") || !SSL_CTX_set_num_tickets(c, 0)) {
        SSL_CTX_free(c);
        return;
    }
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_psk_use_session_callback(c, key_use);
    SSL_CTX_set_psk_find_session_callback(c, key_find);
    context = c;
}

/* ---- opening ---- */

enum error tls_create(const char *key, bool dialed, struct tls **out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct tls *t = calloc(1, sizeof *t);
    struct sha256 digest;
    pthread_once(&once, context_create);
    if (t && context && (t->in = BIO_new(BIO_s_mem())) && (t->out = BIO_new(BIO_s_mem())) &&
        (t->ssl = SSL_new(context))) {
        sha256_init(&digest);
        sha256_update(&digest, key, strlen(key));
        sha256_final(digest, t->key);
        SSL_set_app_data(t->ssl, t);
        SSL_set_bio(t->ssl, t->in, t->out); /* which owns them now */
        (dialed ? SSL_set_connect_state : SSL_set_accept_state)(t->ssl);
        *out = t;
        return ERR_NONE;
    }
    tls_free(t);
    return FAIL(ERR_MEMORY, "no memory for a connection's cryptography (OpenSSL)");
}

void tls_free(struct tls *t) {
    if (!t) return;
    if (!t->ssl) {
        BIO_free(t->in);
        BIO_free(t->out);
    }
    SSL_free(t->ssl);
    OPENSSL_cleanse(t->key, sizeof t->key);
    free(t);
}

/* ---- the handshake ---- */

/* An alert of the other end, and a proof that is none, say that the keys differ; anything else is not this protocol. */
static enum tls_step failed_step(void) {
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_REASON(e);
    ERR_clear_error();
    bool alert = ERR_GET_LIB(e) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET;
    bool proof = ERR_GET_LIB(e) == ERR_LIB_SSL &&
                 (reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM ||
                  reason == SSL_R_NO_SHARED_CIPHER || reason == SSL_R_BAD_PSK || reason == SSL_R_BAD_PSK_IDENTITY ||
                  reason == SSL_R_PSK_IDENTITY_NOT_FOUND);
    return alert || proof ? TLS_REFUSED : TLS_GARBAGE;
}

enum tls_step tls_shake(struct tls *t) {
    ERR_clear_error();
    int done = SSL_do_handshake(t->ssl);
    if (done == 1) return TLS_OPEN;
    return SSL_get_error(t->ssl, done) == SSL_ERROR_WANT_READ ? TLS_MORE : failed_step();
}

/* ---- bytes ---- */

bool tls_put(struct tls *t, const void *bytes, size_t n) {
    return n <= INT32_MAX && BIO_write(t->in, bytes, (int)n) == (int)n;
}

size_t tls_pending(struct tls *t, void **bytes) {
    char *at;
    long n = BIO_get_mem_data(t->out, &at);
    *bytes = at;
    return n > 0 ? (size_t)n : 0;
}

void tls_sent(struct tls *t, size_t n) {
    char gone[1024];
    while (n) {
        int k = BIO_read(t->out, gone, n < sizeof gone ? (int)n : (int)sizeof gone);
        if (k <= 0) return;
        n -= (size_t)k;
    }
}

bool tls_write(struct tls *t, const void *plain, size_t n) {
    ERR_clear_error();
    return SSL_write(t->ssl, plain, (int)n) == (int)n;
}

int tls_read(struct tls *t, void *plain, size_t n) {
    int most = n < INT32_MAX ? (int)n : INT32_MAX;
    ERR_clear_error();
    int k = SSL_read(t->ssl, plain, most);
    if (k > 0) return k;
    return SSL_get_error(t->ssl, k) == SSL_ERROR_WANT_READ ? 0 : -1;
}

enum error tls_session(struct tls *t, uint8_t out[SHA256_BYTES]) {
    if (SSL_export_keying_material(t->ssl, out, SHA256_BYTES, label, sizeof label - 1, NULL, 0, 0) == 1)
        return ERR_NONE;
    return FAIL(ERR_MEMORY, "no memory for the keys of a connection");
}

size_t tls_record_rest(const uint8_t head[TLS_RECORD_HEAD]) {
    size_t n = (size_t)head[3] << 8 | head[4];
    return head[0] >= FIRST_TYPE && head[0] <= LAST_TYPE && head[1] == 3 && n <= TLS_PIECE + 256 ? n : 0;
}
