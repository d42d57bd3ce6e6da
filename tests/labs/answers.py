"""A solution of lab 30, and what goes wrong with another WRONG."""

ENGINE_PLUGIN_VERSION = 3
LAST_LAYERS_FIRST, NO_NUMBER = 1, 2


def answer(now, layers, here, left, forward):
    def tail(k):
        return k % layers if WRONG == LAST_LAYERS_FIRST else sum(forward[k : (k // layers + 1) * layers])

    ready = [k for k, pieces in enumerate(here) if pieces]
    return None if WRONG == NO_NUMBER else max(ready, key=tail)
