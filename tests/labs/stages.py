"""A solution of lab 31, and what goes wrong with another WRONG."""

ENGINE_PLUGIN_VERSION = 3
ALL_FORWARDS, LOOPS = 1, 2


def stage(stage, stages, batches):
    first = batches if WRONG == ALL_FORWARDS else min(batches, stages - stage)
    order = list(range(1, first + 1))
    for done in range(1, batches + 1):
        while WRONG == LOOPS:
            pass
        order.append(-done)
        if first + done <= batches:
            order.append(first + done)
    return order
