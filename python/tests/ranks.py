"""A rank of test_group.py: every call against what numpy makes of all ranks' arrays, which each rank knows."""

import os
import sys

import numpy as np

import engine_dp

N = 12


def given(rank, type, rows=None):
    shape = (rows, N) if rows else (N,)
    return (np.arange(np.prod(shape)).reshape(shape) % 7 + rank + 1).astype(type)


def reductions(g, type):
    every = [given(r, type) for r in range(g.size)]
    wanted = {"sum": np.sum(every, 0), "prod": np.prod(every, 0), "min": np.min(every, 0), "max": np.max(every, 0)}
    if np.dtype(type).kind in "iu":
        wanted["xor"] = np.bitwise_xor.reduce(every)
    for op, value in wanted.items():
        value = value.astype(type)
        mine = given(g.rank, type)
        np.testing.assert_array_equal(g.all_reduce(mine, op), value)
        np.testing.assert_array_equal(mine, given(g.rank, type))
        assert g.all_reduce(mine, op, out=mine) is mine
        np.testing.assert_array_equal(mine, value)
        at = g.reduce(given(g.rank, type), g.size - 1, op)
        assert (at is None) == (g.rank != g.size - 1)
        if at is not None:
            np.testing.assert_array_equal(at, value)
        rows = np.array([given(r, type, g.size) for r in range(g.size)])
        reduce = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max, "xor": np.bitwise_xor.reduce}[op]
        np.testing.assert_array_equal(g.reduce_scatter(rows[g.rank], op), reduce(rows, 0).astype(type)[g.rank:g.rank + 1])


def moves(g, type):
    rows = [given(r, type, g.size) for r in range(g.size)]
    x = given(g.rank, type)
    assert g.broadcast(x, g.size - 1) is x
    np.testing.assert_array_equal(x, given(g.size - 1, type))
    np.testing.assert_array_equal(g.all_gather(given(g.rank, type)), [given(r, type) for r in range(g.size)])
    np.testing.assert_array_equal(g.all_to_all(rows[g.rank]), [rows[r][g.rank] for r in range(g.size)])
    got = g.gather(given(g.rank, type), 0)
    assert (got is None) == (g.rank != 0)
    if got is not None:
        np.testing.assert_array_equal(got, [given(r, type) for r in range(g.size)])
    out = np.empty(N, type)
    g.scatter(rows[0] if g.rank == 0 else None, out)
    np.testing.assert_array_equal(out, rows[0][g.rank])
    if g.size > 1:
        after, before = (g.rank + 1) % g.size, (g.rank - 1) % g.size
        if g.rank == 0:
            g.send(given(g.rank, type), after)
        np.testing.assert_array_equal(g.recv(np.empty(N, type), before), given(before, type))
        if g.rank > 0:
            g.send(given(g.rank, type), after)


def beside(g):
    """Many at once, waited for backwards."""
    arrays = [given(g.rank, "f4") + k for k in range(20)]
    works = [g.all_reduce(a, wait=False) for a in arrays] + [g.barrier(wait=False)]
    for k, work in reversed(list(enumerate(works[:-1]))):
        np.testing.assert_array_equal(work.wait(), sum(given(r, "f4") + k for r in range(g.size)))
        assert work.done()
        work.wait()
    works[-1].wait()


def forgotten(g):
    """More than there is room for, and nobody waits."""
    for k in range(600):
        g.all_reduce(np.full(500, k, "f4"), wait=False)
    old = g.all_reduce(np.ones(3), wait=False)
    for k in range(600):
        g.all_reduce(np.ones(3))
    np.testing.assert_array_equal(old.wait(), [g.size] * 3)
    np.testing.assert_array_equal(g.all_reduce(np.ones(3)), [g.size] * 3)


def parts(g):
    half = g.split(g.rank % 2)
    np.testing.assert_array_equal(half.all_reduce(np.array([g.rank])), [sum(range(g.rank % 2, g.size, 2))])
    assert g.split(-1) is None
    shared = g.empty((3, N), "f8")
    assert not shared.any()
    shared += g.rank
    np.testing.assert_array_equal(g.all_reduce(shared, out=shared), np.full((3, N), sum(range(g.size))))
    s = g.statistics()
    assert s.calls > 0 and (g.size == 1 or s.sent > 0)
    assert ":" in g.choice(1 << 20)


def others(g):
    """What is no numpy array, and what is refused before anything is sent."""
    b = bytearray(range(N))
    assert bytes(g.broadcast(b)) == bytes(range(N))
    np.testing.assert_array_equal(g.all_gather(np.array([True, False])), [[True, False]] * g.size)
    for wrong, error in ((lambda: g.all_reduce(np.array([True])), TypeError), (lambda: g.all_reduce(np.zeros((4, 4)).T), TypeError),
                         (lambda: g.all_reduce(np.zeros(3, "c8")), TypeError), (lambda: g.all_reduce(np.zeros(3), "mean"), ValueError),
                         (lambda: g.all_reduce(np.zeros(3), out=np.zeros(4)), ValueError),
                         (lambda: g.reduce_scatter(np.zeros(g.size + 1) if g.size > 1 else np.zeros(())), ValueError),
                         (lambda: g.broadcast(bytes(3)), TypeError), (lambda: g.all_reduce(3), TypeError)):
        try:
            wrong()
        except error:
            continue
        raise AssertionError(f"{wrong} was taken")
    try:
        import torch
    except ImportError:
        return
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        x = torch.full((N,), g.rank + 1, dtype=kind)
        assert torch.equal(g.all_reduce(x), torch.full((N,), sum(range(1, g.size + 1)), dtype=kind))
        assert g.all_gather(x).shape == (g.size, N)


def failures(g):
    """An exception in one rank's with block is what the others are told."""
    try:
        with g:
            if g.rank == 0:
                raise RuntimeError("no more paper")
            g.barrier()
    except RuntimeError:
        assert g.rank == 0
    except engine_dp.EngineError as e:
        assert g.rank > 0 and "no more paper" in e.message and e.code
    else:
        raise AssertionError("nothing was raised")


def emulated():
    """1 MB from each of two ranks to the other, at 100 Mbit/s each way: at least 80 ms."""
    import time
    with engine_dp.Group(bandwidth=1e8, latency=1e-4) as g:
        x = np.zeros(1 << 18, "f4")
        g.barrier()
        began = time.monotonic()
        g.all_reduce(x, out=x)
        if g.size > 1:
            assert time.monotonic() - began > 0.08


def main(part):
    if part == "emulated":
        return emulated()
    with engine_dp.Group(order=os.environ.get("TEST_ORDER")) as g:
        assert repr(g) == f"<engine_dp.Group: rank {g.rank} of {g.size}>"
        if part == "failures":
            return failures(g)
        for type in ("f4", "f8", "i4", "i8"):
            reductions(g, type)
        for type in ("f2", "f4", "f8", "i4", "i8", "u1", "i1", "?"):
            moves(g, type)
        beside(g)
        forgotten(g)
        parts(g)
        others(g)


main(sys.argv[1])
