/* One end of a TLS 1.3 connection, in memory: the owner carries the bytes to and from a stream. Both ends know one
 * key, a pre-shared one, and there are no certificates. The end that dialed proves first that it holds the key; each
 * connection has keys of its own, made with a Diffie-Hellman exchange (X25519), so nothing can be replayed, and who
 * learns the key later reads no recording.
 *
 * Where there is no key, both ends know that of no text: it is proven that the other end has none either, and no more. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/error.h"
#include <stdbool.h>
#include <stddef.h>

enum { TLS_RECORD_HEAD = 5, TLS_PIECE = 16 << 10 /* of plain bytes, a record at most */ };
enum tls_step {
    TLS_OPEN,    /* the handshake is over: the other end holds the key */
    TLS_MORE,    /* bytes of the other end are awaited */
    TLS_REFUSED, /* one end does not hold the key of the other */
    TLS_GARBAGE, /* the other end does not speak TLS 1.3 */
};
struct tls;
/* key: text; "": there is none. */
MUST_CHECK enum error tls_create(const char *key, bool dialed, struct tls **out);
void tls_free(struct tls *t);
/* Goes on with the handshake. What it has to say, also a refusal, waits in tls_pending. */
enum tls_step tls_shake(struct tls *t);

/* Bytes that came from the stream; false: no memory. */
MUST_CHECK bool tls_put(struct tls *t, const void *bytes, size_t n);
/* Bytes for the stream, which stay until the owner says that n of them are sent. */
size_t tls_pending(struct tls *t, void **bytes);
void tls_sent(struct tls *t, size_t n);

/* Plain bytes, after the handshake. Write takes at most TLS_PIECE, and all of them; false: it is broken. Read gives
 * how many have come, 0: none yet, -1: it is broken, or the other end has changed what was sent. */
MUST_CHECK bool tls_write(struct tls *t, const void *plain, size_t n);
int tls_read(struct tls *t, void *plain, size_t n);

/* Secret bytes that only the two ends have. */
MUST_CHECK enum error tls_session(struct tls *t, uint8_t out[SHA256_BYTES]);
/* How many bytes follow the head of a record; 0: it is none. */
size_t tls_record_rest(const uint8_t head[TLS_RECORD_HEAD]);
