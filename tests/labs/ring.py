"""A solution of lab 24, and what goes wrong with another WRONG."""

ENGINE_PLUGIN_VERSION = 3
ORDER = "ring"
ROUND_TOO_FEW, RECEIVES_FIRST, OTHER_WAY_ROUND = 1, 2, 3


def all_reduce(rank, ranks):
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    for s in range(ranks - 1 - (WRONG == ROUND_TOO_FEW and ranks > 2)):
        out, come = (rank - s) % ranks, (rank - s - 1) % ranks
        if WRONG == OTHER_WAY_ROUND:
            right, left, out, come = (rank - 1) % ranks, (rank + 1) % ranks, (rank + s) % ranks, (rank + s + 1) % ranks
        if WRONG == RECEIVES_FIRST:
            yield {"add": (left, come, come + 1)}
            yield {"send": (right, out, out + 1)}
        else:
            yield {"send": (right, out, out + 1), "add": (left, come, come + 1)}
    for s in range(ranks - 1):
        out, come = (rank + 1 - s) % ranks, (rank - s) % ranks
        if WRONG == OTHER_WAY_ROUND:
            out, come = (rank - 1 + s) % ranks, (rank + s) % ranks
        yield {"send": (right, out, out + 1), "put": (left, come, come + 1)}
