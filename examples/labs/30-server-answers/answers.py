"""my order of answers

Lab 30: what a server sends next. At first it always waits, and 'engine check answers.py' says so.

The answers are those of several workers times so many layers: number w * layers + i is layer i of worker w. Of answer k,
here[k] pieces can leave now and left[k] have not left, and its worker computes forward[k] with that layer, when it has all of
it and has computed the layers before. The result is the number of an answer with here[k] > 0, or -1: the port waits until
more has come.
"""

ENGINE_PLUGIN_VERSION = 3


def answer(now, layers, here, left, forward):
    return -1  # TODO
