"""my schedule of buckets

Lab 29. At first no bucket ends, so that nothing travels, and 'engine check buckets.py' says so.

Layer i is ready at ready[i] seconds, and has sizes[i] bytes. A message of n bytes takes alpha + beta * n seconds, and one
travels after another. The result has as many numbers as there are layers, 1 where a bucket ends with that layer, else 0; the
last layer has to end one.
"""

ENGINE_PLUGIN_VERSION = 3


def buckets(ready, sizes, alpha, beta):
    return [0] * len(ready)  # TODO
