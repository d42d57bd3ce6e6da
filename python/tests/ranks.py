"""A rank of test_group.py: every call is compared with numpy's result from all ranks' arrays, which each rank knows."""

import array
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import time

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
        part = reduce(rows, 0).astype(type)[g.rank:g.rank + 1]
        np.testing.assert_array_equal(g.reduce_scatter(rows[g.rank], op), part)


def moves(g, type):
    rows = [given(r, type, g.size) for r in range(g.size)]
    x = given(g.rank, type)
    assert g.broadcast(x, g.size - 1) is x
    np.testing.assert_array_equal(x, given(g.size - 1, type))
    np.testing.assert_array_equal(g.all_gather(given(g.rank, type)), [given(r, type) for r in range(g.size)])
    np.testing.assert_array_equal(g.all_to_all(rows[g.rank]), [rows[r][g.rank] for r in range(g.size)])
    for out in (None, np.empty((g.size, N), type) if g.rank == 0 else None):
        got = g.gather(given(g.rank, type), 0, out=out)
        assert (got is None) == (g.rank != 0) and (out is None or got is out)
        if got is not None:
            np.testing.assert_array_equal(got, [given(r, type) for r in range(g.size)])
    out = np.empty(N, type)
    g.scatter(rows[0] if g.rank == 0 else None, out)
    np.testing.assert_array_equal(out, rows[0][g.rank])
    if g.size > 1:
        after, before = (g.rank + 1) % g.size, (g.rank - 1) % g.size
        for tag in (1, 2):  # every rank sends before it receives
            g.send(given(g.rank, type), after, tag)
        works = [g.recv(np.empty(N, type), before, tag=2, wait=False), g.recv(np.empty(N, type), tag=1, wait=False)]
        for work in works:
            np.testing.assert_array_equal(work.wait(), given(before, type))
            assert work.source == before
        g.send(np.array([g.rank]), after)
        out, source = g.recv(np.empty(1, int))
        assert out[0] == source == before


def beside(g):
    """Many calls at once; the last is waited for first."""
    arrays = [given(g.rank, "f4") + k for k in range(20)]
    works = [g.all_reduce(a, wait=False) for a in arrays] + [g.barrier(wait=False)]
    for k, work in reversed(list(enumerate(works[:-1]))):
        np.testing.assert_array_equal(work.wait(), sum(given(r, "f4") + k for r in range(g.size)))
        assert work.done()
        work.wait()
    works[-1].wait()


def forgotten(g):
    """More calls than there is room for, and nobody waits for them."""
    for k in range(600):
        g.all_reduce(np.full(500, k, "f4"), wait=False)
    old = g.all_reduce(np.ones(3), wait=False)
    for k in range(600):
        g.all_reduce(np.ones(3))
    np.testing.assert_array_equal(old.wait(), [g.size] * 3)
    np.testing.assert_array_equal(g.all_reduce(np.ones(3)), [g.size] * 3)


def aside(g):
    """Messages that are waited for take no room from a call that is in progress."""
    to, source = (g.rank + 1) % g.size, (g.rank - 1) % g.size
    slow = g.barrier(wait=False) if g.rank == 0 else None
    for k in range(300):
        g.send(np.array([k]), to, k)
        assert g.recv(np.empty(1, int), source, k)[0] == k
    slow = slow or g.barrier(wait=False)
    slow.wait()


def watched(g):
    """A thread waits for works while another asks whether they have ended."""
    works = []

    def watch():
        while works is not None:
            for work in list(works):
                work.done()
            time.sleep(1e-5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    to, source = (g.rank + 1) % g.size, (g.rank - 1) % g.size
    for k in range(500):
        works[:] = [g.recv(np.empty(1, int), source, wait=False), g.send(np.array([k]), to, wait=False)]
        assert works[0].wait()[0] == k
        works[1].wait()
    works = None
    watcher.join()


def forked(g):
    """A process that was forked cannot use the group, and does not disturb it."""
    child = os.fork()
    if child == 0:
        try:
            g.all_reduce(np.ones(3))
        except ValueError as e:
            with g:
                g.close()
            os._exit(0 if "forked" in str(e) and len(repr(g)) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(g.all_reduce(np.ones(3)), [g.size] * 3)


def dropped(g):
    """A group that nobody has any more is left, and what still arrives for it goes nowhere."""
    other = engine_dp.Group(f"file://{tempfile.gettempdir()}/engine-test-{g.name}", g.rank, g.size)
    other.recv(np.empty(1 << 20), (g.rank - 1) % g.size, 5, wait=False)
    part = other.split(0)
    closing = other._closing
    del other
    gc.collect()
    assert closing.alive  # the one that was split from it is still there
    np.testing.assert_array_equal(part.all_reduce(np.ones(3)), [g.size] * 3)
    g.barrier()
    del part
    gc.collect()
    assert not closing.alive
    g.barrier()


def ends(g):
    """A program ends while a large message arrives, and another while a call runs; the exit code is its own."""
    if g.rank == 0:
        g.recv(np.empty(1 << 22), 1, wait=False)
        g.barrier()
        g.all_reduce(np.empty(1 << 20), wait=False)
        sys.exit(3)
    g.barrier()
    try:
        if g.rank == 1:
            g.send(np.empty(1 << 22), 0)
        g.all_reduce(np.ones(3))
        raise AssertionError("a rank that has left was not noticed")
    except engine_dp.EngineError as e:
        assert "rank 0" in str(e), e
        time.sleep(60)


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
    """Arguments that are not numpy arrays, and those that are refused before anything is sent."""
    a, out = array.array("f", range(2 * g.size)), array.array("f", [0, 0])
    g.scatter(a if g.rank == 0 else None, out)
    assert list(out) == [2 * g.rank, 2 * g.rank + 1]
    assert list(g.reduce_scatter(a)) == [g.size * x for x in out]
    b = bytearray(range(N))
    assert bytes(g.broadcast(b)) == bytes(range(N))
    rows = np.zeros((g.size, 2))
    every = g.gather(bytes(b))
    assert every is None or every.tobytes() == bytes(range(N)) * g.size
    np.testing.assert_array_equal(g.all_gather(np.array([True, False])), [[True, False]] * g.size)
    for wrong, error in ((lambda: g.all_reduce(np.array([True])), TypeError),
                         (lambda: g.all_reduce(np.zeros((4, 4)).T), TypeError),
                         (lambda: g.all_reduce(np.zeros(3, "c8")), TypeError),
                         (lambda: g.all_reduce(np.zeros(3), "mean"), ValueError),
                         (lambda: g.all_reduce(np.zeros(3), "and"), TypeError), (lambda: g.empty(-3), ValueError),
                         (lambda: g.all_to_all(rows, out=rows), ValueError),
                         (lambda: g.split(1 << 31), ValueError), (lambda: g.split(0, -1 << 40), ValueError),
                         (lambda: g.send(np.zeros(3), g.rank - 1 if g.rank else 1, 1 << 63), ValueError),
                         (lambda: g.all_reduce(np.zeros(3, np.dtype("f4").newbyteorder())), TypeError),
                         (lambda: g.broadcast(np.zeros(3), g.size), ValueError),
                         (lambda: g.reduce(np.zeros(3), -1), ValueError),
                         (lambda: g.send(np.zeros(3), g.rank), ValueError),
                         (lambda: g.recv(np.zeros(3), g.size), ValueError),
                         (lambda: g.all_reduce(np.zeros(3), out=np.zeros(4)), ValueError),
                         (lambda: g.reduce_scatter(np.zeros(g.size + 1) if g.size > 1 else np.zeros(())), ValueError),
                         (lambda: g.broadcast(bytes(3)), TypeError), (lambda: g.all_reduce(3), TypeError)):
        try:
            wrong()
        except error:
            continue
        raise AssertionError(f"{wrong} was accepted")
    try:
        import torch
    except ImportError:
        return
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        x = torch.full((N,), g.rank + 1, dtype=kind)
        assert torch.equal(g.all_reduce(x), torch.full((N,), sum(range(1, g.size + 1)), dtype=kind))
        assert g.all_gather(x).shape == (g.size, N)
    trained = torch.ones(N, requires_grad=True)
    assert g.scatter(torch.full((g.size, N), 2.0), trained) is trained and trained.sum() == 2 * N
    every = g.gather(trained)
    assert every is None or not every.requires_grad


def failures(g):
    """The others' error gives the exception in one rank's with block."""
    try:
        with g:
            if g.rank == 0:
                raise RuntimeError("no more paper")
            g.barrier()
    except RuntimeError:
        assert g.rank == 0
    except engine_dp.EngineError as e:
        assert g.rank > 0 and "rank 0: RuntimeError: no more paper" in e.message and e.code
    else:
        raise AssertionError("nothing was raised")


def emulated():
    """Each of two ranks sends the other 1 MB at 100 Mbit/s each way: that takes at least 80 ms."""
    import time
    with engine_dp.Group(bandwidth=1e8, latency=1e-4) as g:
        x = np.zeros(1 << 18, "f4")
        g.barrier()
        began = time.monotonic()
        g.all_reduce(x, out=x)
        if g.size > 1:
            assert time.monotonic() - began > 0.08


MESSAGES = 700


def traced(g, folder):
    """A trace has all calls, though they are more than the record has room for, with their bytes and their waits for a
    rank that slept."""
    import json
    import time
    half = g.split(g.rank // 2)
    half.call_it("a half")
    path = os.path.join(folder, "trace.json")
    x = np.ones(1 << 16, "f4")
    to, source = (g.rank + 1) % g.size, (g.rank - 1) % g.size
    g.send(x, to)  # not in the trace
    g.recv(np.empty_like(x), source)
    g.barrier()
    early = g.recv(np.empty(1, "i8"), source, wait=False)  # what comes in the trace is not what the trace itself sends
    with g.trace(os.path.join(folder, "short.json")):
        g.barrier()
    g.send(np.array([4]), to)
    assert early.wait()[0] == 4
    with g.trace(path):
        before = time.monotonic_ns(), g.statistics()
        for k in range(1500):
            if k == 700 and g.rank == 1:
                time.sleep(0.25)
            g.all_reduce(x, out=x, op="max")
        half.broadcast(np.zeros(100, "u1"), half.size - 1)
        late = g.recv(np.empty(1, "i8"), source, MESSAGES, wait=False)
        for k in range(MESSAGES):
            g.send(np.zeros(k, "u1"), to, k)
            g.recv(np.zeros(k, "u1"), None if k % 2 else source, k)
        g.send(np.zeros(1, "i8"), to, MESSAGES)
        late.wait()
        after = time.monotonic_ns(), g.statistics()
        try:
            with g.trace(path):
                raise AssertionError("a second trace at the same time was accepted")
        except ValueError:
            pass
    calls = after[1].calls - before[1].calls - 2 * (MESSAGES + 1)
    told = sum(range(MESSAGES)) + 8
    every = g.all_gather(np.array([before[0], after[0], after[1].sent - before[1].sent - told]))
    if g.rank:
        return
    with open(path) as f:
        whole = json.load(f)
    events = whole["traceEvents"]
    assert whole["displayTimeUnit"] == "ms" and whole["otherData"]["ranks"] == g.size
    assert whole["otherData"]["calls_without_room"] == 0
    assert [c["offset_ns"] for c in whole["otherData"]["clocks"]] == [0] * g.size
    for e in events:
        assert isinstance(e["name"], str) and e["ph"] in "XM" and e["pid"] in range(g.size)
        if e["ph"] == "X":
            assert e["ts"] >= 0 and e["dur"] >= 0 and isinstance(e["tid"], int) and isinstance(e["cat"], str)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for r in range(g.size):
        mine = [e for e in events if e["pid"] == r and e.get("cat") == "collective"]
        world = [e for e in mine if names[r, e["tid"]] == f"engine: group {g.name}"]
        assert len(world) == calls == 1500 and {e["name"] for e in world} == {"all_reduce"}
        if g.size == 2:  # each sends half of its terms and half of the sums: as many bytes as one array has
            assert sum(e["args"]["bytes"] for e in world) == every[r][2]
        assert sum(e["args"]["bytes"] for e in world) == 1500 * x.nbytes
        assert sum(e["dur"] for e in world) * 1000 < every[r][1] - every[r][0]
        for a, b in zip(world, world[1:]):
            assert b["ts"] >= a["ts"] + a["dur"] - 0.01 and b["args"]["number"] == a["args"]["number"] + 1
        waits = [e["args"]["waiting_us"] for e in world]
        assert all(0 <= w <= e["dur"] + 0.01 for w, e in zip(waits, world))
        assert waits[700] == 0 if r == 1 else waits[700] >= 0.24e6
        shown = [e for e in events if e["pid"] == r and e.get("cat") == "wait" and e["ts"] == world[700]["ts"]]
        assert [e["name"] for e in shown] == ([] if r == 1 else ["wait for rank 1"])
        part = [e for e in mine if names[r, e["tid"]] == "engine: a half"]
        wanted = [("broadcast", 100)] if r // 2 * 2 + 1 < g.size else []
        assert [(e["name"], e["args"]["bytes"]) for e in part] == wanted
        for row, kind, peer in (("sent", "send", (r + 1) % g.size), ("received", "recv", (r - 1) % g.size)):
            moved = [e for e in events if e["pid"] == r and e.get("cat") == "message"
                     and names[r, e["tid"]] == f"engine: group {g.name} ({row})"]
            by_tag = sorted(moved, key=lambda e: e["args"]["tag"])  # the last may come while the one before is not asked for
            assert [(e["name"], e["args"]["peer"], e["args"]["tag"], e["args"]["bytes"]) for e in by_tag] == [
                (kind, peer, k, k) for k in range(MESSAGES)] + [(kind, peer, MESSAGES, 8)], by_tag
            for a, b in zip(moved, moved[1:]):
                assert b["ts"] >= a["ts"] + a["dur"] - 0.01
            if row == "received":  # the last was asked for before all others
                late = by_tag[-1]
                assert all(e["args"]["asked_us"] >= e["dur"] - 0.01 for e in moved)
                assert late["args"]["asked_us"] >= late["ts"] + late["dur"] - moved[0]["ts"]


def interrupted(folder):
    """Ctrl-C ends a wait for a rank that does not come, and for one that does not open the group. A handler of the
    program's own is called, and its calls go on; so is who has asked for the signals' numbers before."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.settimeout(60)
    signal.set_wakeup_fd(theirs.fileno())
    g = engine_dp.Group()
    first = g.all_gather(np.array([os.getpid()]))[0][0]
    came, seen = os.path.join(folder, "came"), []

    def interrupt():
        time.sleep(0.5)  # so that rank 0 waits
        os.kill(first, signal.SIGINT)

    if g.rank == 0:
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    g.barrier()
    if g.rank == 1:
        interrupt()
        time.sleep(0.5)
    g.barrier()
    if g.rank == 0:
        assert seen == [signal.SIGINT] and ours.recv(9) == bytes(seen)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    g.barrier()
    try:
        if g.rank == 1:
            interrupt()
            end = time.monotonic() + 60
            while not os.path.exists(came) and time.monotonic() < end:
                time.sleep(0.01)
            assert os.path.exists(came), "rank 0 still waits"
        g.barrier()
        raise AssertionError("an interrupt was not noticed")
    except KeyboardInterrupt:
        assert g.rank == 0
        open(came, "w").close()
        threading.Thread(target=interrupt).start()
        try:
            engine_dp.Group(f"file://{folder}/nobody", 0, 2)
            raise AssertionError("a rank that never came was there")
        except KeyboardInterrupt:
            pass
    except engine_dp.EngineError as e:
        assert g.rank == 1 and "rank 0" in str(e) and "interrupted" in str(e), e


def main(part):
    if part == "interrupted":
        return interrupted(sys.argv[2])
    if part == "emulated":
        return emulated()
    if part == "ends":
        return ends(engine_dp.Group())
    with engine_dp.Group(order=os.environ.get("TEST_ORDER")) as g:
        assert repr(g) == f"<engine_dp.Group: rank {g.rank} of {g.size}>"
        if part == "failures":
            return failures(g)
        if part == "trace":
            return traced(g, sys.argv[2])
        for type in ("f4", "f8", "i4", "i8"):
            reductions(g, type)
        for type in ("f2", "f4", "f8", "i4", "i8", "u1", "i1", "?"):
            moves(g, type)
        beside(g)
        forgotten(g)
        if g.size > 1:
            aside(g)
            watched(g)
            dropped(g)
        forked(g)
        parts(g)
        others(g)
    try:
        engine_dp.Group().close()
        assert g.size == 1
    except engine_dp.EngineError as e:
        assert "can do so once" in e.message and "split" in e.hint, e


main(sys.argv[1])
