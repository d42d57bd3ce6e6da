"""my order of forwards and backwards

Lab 31: the order of a stage's tasks. At first there is none, and 'engine check stages.py' says so.

Stage 'stage' of 'stages', counted from 0, computes 'batches' micro-batches, counted from 1. The result are its 2 * batches
tasks, in their order: b for the forward of micro-batch b, -b for its backward.
"""

ENGINE_PLUGIN_VERSION = 3


def stage(stage, stages, batches):
    return []  # TODO
