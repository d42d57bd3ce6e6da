"""A solution of lab 26, and what goes wrong with another WRONG."""

import struct
from array import array
from math import inf, isfinite

ENGINE_PLUGIN_VERSION = 3
DROPS_THE_REST, HIDES_NAN, TOO_MANY = 1, 2, 3
BLOCK, K = 256, 32 if WRONG == TOO_MANY else 8
FEEDBACK = WRONG != DROPS_THE_REST
PACKET = struct.Struct(f"<{K}f{K}B")


def size(x):
    return abs(x) if isfinite(x) else 0 if WRONG == HIDES_NAN else inf


def encode(values):
    sizes = [size(x) for x in values]
    places = sorted(range(len(values)), key=sizes.__getitem__, reverse=True)[:K]
    more = [0] * (K - len(places))
    return PACKET.pack(*[values[i] for i in places], *[0.0 for _ in more], *places, *more)


def decode(data, count):
    packet = PACKET.unpack(data)
    values = array("f", bytes(4 * count))
    for x, i in zip(packet, packet[K:]):
        values[i] += x
    return values
