"""A solution of lab 29, and what goes wrong with another WRONG."""

ENGINE_PLUGIN_VERSION = 3
THE_REST_STAYS, EACH_ALONE, TOO_SHORT = 1, 2, 3


def buckets(ready, sizes, alpha, beta):
    n, lane, before = len(ready), [0.0], [0]
    for end in range(1, n + 1):
        ways = [(max(lane[i], ready[end - 1]) + alpha + beta * sum(sizes[i:end]), i) for i in range(end)]
        lane.append(min(ways)[0])
        before.append(min(ways)[1])
    ends, at = [int(WRONG == EACH_ALONE)] * n, n
    while at:
        ends[at - 1] = 1
        at = before[at]
    if WRONG == THE_REST_STAYS:
        ends[-1] = 0
    return ends[1:] if WRONG == TOO_SHORT else ends
