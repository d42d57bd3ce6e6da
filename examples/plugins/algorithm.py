"""an all-reduce by rank 0: it adds what all others send, and sends the sum to them

all_reduce yields the steps of one rank, one after another; a step may send and receive at once:

    {"send": (rank, first, end)}    chunks first to end - 1 go to that rank
    {"add": (rank, first, end)}     those that come from that rank are added to those that are there
    {"put": (rank, first, end)}     those that come take their place

The buffer is cut into as many chunks as there are ranks, whatever its length is. The engine asks for the steps once for
each size of group, checks that all of them fit together, and then does them itself.

Check it:  engine check algorithm.py
Use it:    engine run config.yaml --devices cpu:4 --set comm.algorithm=./algorithm.py
"""

ENGINE_PLUGIN_VERSION = 3
ORDER = "own"  # of additions: "tree" or "ring" promise the bits of that order


def all_reduce(rank, ranks):
    others = range(1, ranks)
    if rank == 0:
        for other in others:
            yield {"add": (other, 0, ranks)}
        for other in others:
            yield {"send": (other, 0, ranks)}
    else:
        yield {"send": (0, 0, ranks)}
        yield {"put": (0, 0, ranks)}
