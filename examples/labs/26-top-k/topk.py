"""my top-k

Lab 26: of each block of 256 gradients, the 8 largest travel; the others wait. At first nothing does, and
'engine check topk.py' says so.

encode gets an array of at most 256 floats and gives the bytes of a packet, 40 for 1024; decode gives the floats of a packet.
What decode does not give back is added to the gradients of the next step (error feedback).
"""

import struct
from array import array
from math import isfinite

ENGINE_PLUGIN_VERSION = 3
BLOCK, K = 256, 8
FEEDBACK = True
PACKET = struct.Struct(f"<{K}f{K}B")  # values, and their places


def encode(values):
    # TODO: the K values with the largest magnitude and their places; fewer of a shorter block. A value that is not finite
    # (isfinite) has to travel, so that a run that diverges ends.
    return PACKET.pack(*[0.0] * K, *[0] * K)


def decode(data, count):
    packet = PACKET.unpack(data)
    values = array("f", bytes(4 * count))
    # TODO
    return values
