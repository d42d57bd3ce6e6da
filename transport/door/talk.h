/* One end of a connection between a door (door.h) and who visits it (visit.h): messages, in TLS, over
 * a socket whose calls do not wait. Never a byte is received beyond what is wanted, since the stream may be kept for
 * something else afterwards.
 *
 * What can fail gives 0 or an errno: EAGAIN where bytes have to be awaited, or room for them, EKEYREJECTED where one end does
 * not hold the other's key, EPROTO where the other end speaks something else, EBADMSG where bytes were changed on the
 * way, EMSGSIZE where more have come than may. */
#pragma once
#include "transport/door/tls.h"

struct stream { /* that was kept: its bytes are the owner's from here on */
    int fd;
    bool dialed; /* by this process */
    uint8_t session[SHA256_BYTES];
};
struct talk {
    int fd; /* -1: none */
    struct tls *tls;
    bool dialed; /* by this process */
    uint8_t *message;
    size_t room, done, total; /* bytes: of its memory; that have come, or are in the hands of tls, of how many */
    size_t most;              /* bytes that may still come */
    uint8_t head[TLS_RECORD_HEAD];
    size_t head_done, rest; /* bytes: of the head of the record that comes; still to come after it */
};
/* Of a stream that is open. key: text; "": there is none. */
MUST_CHECK enum error talk_begin(struct talk *t, int fd, const char *key, bool dialed);
void talk_end(struct talk *t);  /* and of the stream, if it is not kept; the message stays */
void talk_free(struct talk *t); /* that, and the message */
/* The stream is kept, for *out. */
MUST_CHECK enum error talk_keep(struct talk *t, struct stream *out);
/* The message, with room for n bytes; NULL: no memory. */
uint8_t *talk_room(struct talk *t, size_t n);
int talk_shake(struct talk *t); /* the handshake; what TLS says of its failure waits to be sent, by talk_write */
/* The rest of the message, up to 'total'. */
int talk_write(struct talk *t);
int talk_read(struct talk *t);
