"""What every rank's calls did, and when, in one file for Perfetto (https://ui.perfetto.dev) or chrome://tracing:
Group.trace() for programs with numpy, and engine_dp.torch.profile() together with what torch.profiler has recorded.

The library records the begin and end of each call anyway (for engine inspect). Here they are read before newer calls
take their place, sent to rank 0, put on its clock, and written.
"""

import contextlib
import ctypes
import itertools
import json
import os
import socket
import tempfile
import threading
import time
import zlib
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy

from . import group as _group
from ._library import Call, check, library

_ROWS = 1 << 30  # ids of the collectives' rows; those of threads are lower
_KINDS = (1, 0, 2, 3)  # of calls (engine.h), in the order of their rows
_BESIDE = (" (split, empty)", "", " (sent)", " (received)")
_MESSAGES = 2  # and higher


class _Noted(NamedTuple):
    name: str
    sequence: int
    bytes: int
    tag: int
    began: int  # ns, like all times here
    ended: int
    root: int  # or the peer
    code: int


class _Record:
    """The calls of one group in four lists: calls that waited, calls that were started, and messages sent and received."""

    def __init__(self, g: _group.Group):
        self.name, self.rank, self.size, self.label = g.name, g.rank, g.size, g.label
        self.next = [0] * len(_KINDS)
        self.forget()

    def forget(self) -> None:
        self.lost = 0
        self.calls: List[List[_Noted]] = [[] for _ in _KINDS]

    def take(self, g: _group.Group) -> None:
        self.label = g.label
        for kind in _KINDS:
            count = library().engine_group_calls(g._handle, kind, self.next[kind], _buffer, len(_buffer))
            for c in itertools.takewhile(lambda c: c.ended, _buffer[:count]):
                self.lost += c.number - self.next[kind]
                self.next[kind] = c.number + 1
                self.calls[kind].append(
                    _Noted(c.name.decode(), c.sequence, c.bytes, c.tag, c.began, c.ended, c.root, c.code))


_buffer = (Call * 512)()  # as many as a group keeps in each list
_reading = threading.Lock()  # for the buffer and the records


class _Recorder:
    """The calls of this process's groups from now on."""

    def __init__(self) -> None:
        self.records: Dict[str, _Record] = {}
        for g in list(_group._groups):
            self.take(g)
        for r in self.records.values():
            r.forget()

    def take(self, g: _group.Group) -> None:
        if g.name:
            with _reading:
                if g.name not in self.records:
                    self.records[g.name] = _Record(g)
                self.records[g.name].take(g)

    def end(self) -> None:
        for g in list(_group._groups):
            self.take(g)


def _gathered(g: _group.Group, mine: bytes) -> List[bytes]:
    """Every rank's bytes on rank 0; nothing on the others."""
    sizes = g.all_gather(numpy.array([len(mine)])).reshape(-1)
    padded = numpy.zeros(int(sizes.max()), "u1")
    padded[:len(mine)] = numpy.frombuffer(mine, "u1")
    every = g.gather(padded)
    return [part[:int(n)].tobytes() for part, n in zip(every, sizes)] if g.rank == 0 else []


def _clock(g: _group.Group) -> Tuple[int, int]:
    offset, trip = ctypes.c_longlong(), ctypes.c_longlong()
    check(library().engine_group_clock(g._open(), ctypes.byref(offset), ctypes.byref(trip)))
    return offset.value, trip.value


def _wall() -> int:
    """What to add to the monotonic clock to get the wall clock."""
    return max(time.time_ns() - time.monotonic_ns() for _ in range(16))


# ---- as events ----


class _Rank:
    """What one rank has sent, with its times on rank 0's clock."""

    def __init__(self, rank: int, sent: Dict[str, Any]):
        self.rank, self.pid, self.host = rank, sent["pid"], sent["host"]
        self.offset, self.trip, self.wall = sent["offset"], sent["trip"], sent["wall"]
        self.torch: Dict[str, Any] = sent["torch"] or {}
        self.groups = sent["groups"]
        for g in self.groups:
            g["calls"] = [[c._replace(began=c.began + self.offset, ended=c.ended + self.offset) for c in itertools.starmap(_Noted, calls)]
                          for calls in g["calls"]]

    def torch_ns(self, ts: float) -> float:
        """torch.profiler's times are of the wall clock, in us after a base time of its own."""
        return ts * 1e3 + self.torch.get("baseTimeNanoseconds", 0) - self.wall + self.offset


def _last(ranks: List[_Rank]) -> Dict[Tuple[str, int, int], Tuple[int, int, int]]:
    """For each collective (group, list, number): when the last rank entered it, which rank that was, how many did."""
    found: Dict[Tuple[str, int, int], Tuple[int, int, int]] = {}
    for r in ranks:
        for g in r.groups:
            for started, calls in enumerate(g["calls"][:_MESSAGES]):
                for c in calls:
                    key = (g["name"], started, c.sequence)
                    began, last, count = found.get(key, (0, 0, 0))
                    if c.began > began or not count:
                        began, last = c.began, r.rank
                    found[key] = (began, last, count + 1)
    return found


def _message_events(r: _Rank, g: Dict[str, Any], calls: List[_Noted], row: int, zero: float) -> Iterator[Dict[str, Any]]:
    """In the order of their ends. Receives that are asked for at the same time would overlap: each is drawn from the end of the
    one before."""
    free = 0
    for c in calls:
        began, free = max(c.began, free), c.ended
        args: Dict[str, Any] = {"bytes": c.bytes, "group": g["name"], "peer": c.root, "tag": c.tag}
        if c.name == "recv":
            args["asked_us"] = (c.ended - c.began) / 1e3
        if c.code:
            args["failed"] = c.code
        yield {"name": c.name, "cat": "message", "ph": "X", "pid": r.rank, "tid": row, "ts": round((began - zero) / 1e3, 3),
               "dur": round((c.ended - began) / 1e3, 3), "args": args}


def _call_events(r: _Rank, last: Dict, zero: float) -> Iterator[Dict[str, Any]]:
    row = _ROWS
    for g, kind in itertools.product(r.groups, _KINDS):
        calls = g["calls"][kind]
        if not calls:
            continue
        row += 1
        title = f"engine: {g['label'] or 'group ' + g['name']}{_BESIDE[kind]}"
        yield {"name": "thread_name", "ph": "M", "pid": r.rank, "tid": row, "args": {"name": title}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": r.rank, "tid": row, "args": {"sort_index": row}}
        if kind >= _MESSAGES:
            yield from _message_events(r, g, calls, row, zero)
            continue
        for c in calls:
            args: Dict[str, Any] = {"bytes": c.bytes, "group": g["name"], "number": c.sequence}
            if c.root >= 0:
                args["root"] = c.root
            if c.code:
                args["failed"] = c.code
            began, last_rank, count = last.get((g["name"], kind, c.sequence), (0, 0, 0))
            waited = max(0, min(began, c.ended) - c.began) if count == g["size"] else None
            if waited is not None:
                args["waiting_us"] = waited / 1e3
            common = {"ph": "X", "pid": r.rank, "tid": row, "ts": round((c.began - zero) / 1e3, 3)}
            yield {"name": c.name, "cat": "collective", **common,
                   "dur": round((c.ended - c.began) / 1e3, 3), "args": args}
            if waited:
                yield {"name": f"wait for rank {last_rank}", "cat": "wait", **common, "dur": round(waited / 1e3, 3)}


def _torch_events(r: _Rank, others: Iterator[int], zero: float) -> Iterator[Dict[str, Any]]:
    """torch.profiler's events, in the rank's process; other processes (GPUs, spans) get numbers that no rank has."""
    pids: Dict[Any, int] = {r.pid: r.rank, str(r.pid): r.rank}
    for e in r.torch.get("traceEvents", []):
        e = dict(e)
        if "pid" in e:
            if e["pid"] not in pids:
                pids[e["pid"]] = next(others)
            e["pid"] = pids[e["pid"]]
        if e.get("ph") == "M":
            if e.get("pid") == r.rank and e.get("name", "").startswith("process_"):
                continue  # the rank has its own already
            if e.get("name") == "process_name":
                e["args"] = {"name": f"rank {r.rank}: {e['args'].get('name', '')}"}
        elif "ts" in e:
            e["ts"] = round((r.torch_ns(e["ts"]) - zero) / 1e3, 3)
        if "id" in e:
            e["id"] = f"{r.rank}.{e['id']}"
        yield e


def _begin(r: _Rank) -> float:
    times = [c.began for g in r.groups for calls in g["calls"] for c in calls]
    times += [r.torch_ns(e["ts"]) for e in r.torch.get("traceEvents", []) if "ts" in e and e.get("ph") != "M"]
    return min(times, default=float("inf"))


def _merged(ranks: List[_Rank]) -> Dict[str, Any]:
    events: List[Dict[str, Any]] = []
    others = itertools.count(len(ranks))
    last, zero = _last(ranks), min(_begin(r) for r in ranks)
    for r in ranks:
        name = f"rank {r.rank} (pid {r.pid} on {r.host})"
        events.append({"name": "process_name", "ph": "M", "pid": r.rank, "args": {"name": name}})
        events.append({"name": "process_sort_index", "ph": "M", "pid": r.rank, "args": {"sort_index": r.rank}})
        events += _call_events(r, last, zero)
        events += _torch_events(r, others, zero)
    return {"displayTimeUnit": "ms", "traceEvents": events, "otherData": {
        "ranks": len(ranks),
        "clocks": [{"rank": r.rank, "offset_ns": r.offset, "round_trip_ns": r.trip} for r in ranks],
        "calls_without_room": sum(g["lost"] for r in ranks for g in r.groups)}}


# ---- the whole ----


def _open_beside(path: str) -> IO[str]:
    """A new file beside this one, under a name that nobody has."""
    for number in itertools.count():
        try:
            return open(f"{path}.{os.getpid()}-{number}.tmp", "x")
        except FileExistsError:
            continue
    raise AssertionError


def _is_no_file(path: str) -> bool:
    """A device or a FIFO is written into; nothing can take its place."""
    return os.path.exists(path) and not os.path.isfile(path)


def _check_place(path: Any) -> None:
    path = os.path.realpath(path)
    if not _is_no_file(path):
        with _open_beside(path) as f:
            os.remove(f.name)


def _write_file(path: Any, merged: Any) -> None:
    """The file appears whole, also where links lead to it."""
    path = os.path.realpath(path)
    if _is_no_file(path):
        with open(path, "w") as f:
            json.dump(merged, f)
        return
    with _open_beside(path) as f:
        json.dump(merged, f)
    os.replace(f.name, path)


def write(g: _group.Group, recorder: _Recorder, path: Any, torch_trace: Optional[Dict[str, Any]] = None) -> None:
    """Called by all ranks of the group after the calls are over; rank 0 writes the file."""
    recorder.end()
    offset, trip = _clock(g)
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "offset": offset, "trip": trip, "wall": _wall(),
            "torch": torch_trace, "groups": [vars(r) for r in recorder.records.values()]}
    parts = _gathered(g, zlib.compress(json.dumps(mine).encode(), 1))
    if g.rank == 0:
        ranks = [_Rank(r, json.loads(zlib.decompress(part))) for r, part in enumerate(parts)]
        _write_file(path, _merged(ranks))


@contextlib.contextmanager
def recording(g: _group.Group, path: Any) -> Iterator[_Recorder]:
    """Records the calls that all groups of this process make inside, for a file of rank 0."""
    if _group._watch:
        raise ValueError("a trace is being recorded already, and there can be only one at a time")
    if g.size > 1 and not g.name:
        raise ValueError("no calls are recorded, because ENGINE_FLIGHT is empty or its folder cannot be written")
    if g.rank == 0:
        _check_place(path)  # an error in it is reported before the work
    recorder = _Recorder()
    _group._watch = recorder.take
    try:
        yield recorder
    finally:
        _group._watch = None


@contextlib.contextmanager
def trace(g: _group.Group, path: Any) -> Iterator[None]:
    with recording(g, path) as recorder:
        yield
        write(g, recorder, path)


@contextlib.contextmanager
def torch_trace(path: Any, group: Any = None, **settings: Any) -> Iterator[Any]:
    """with engine_dp.torch.profile("trace.json") as prof: what torch.profiler.profile records on each rank, and the
    group's calls, go into one file on one clock, which rank 0 writes at the end. Every rank of the group enters and
    leaves; without 'group' it is the default one of torch.distributed. settings: those of torch.profiler.profile except
    on_trace_ready; with a schedule the file has its last cycle beside all calls."""
    import torch

    if "on_trace_ready" in settings:
        raise TypeError("on_trace_ready cannot be set here: the trace goes to the file")
    g = getattr((group or torch.distributed.group.WORLD)._get_backend(torch.device("cpu")), "engine", None)
    if g is None:
        raise ValueError("the group does not use the backend 'engine': give one that does")
    with tempfile.TemporaryDirectory() as folder, recording(g, path) as recorder:
        own = os.path.join(folder, "torch.json")
        with torch.profiler.profile(on_trace_ready=lambda p: p.export_chrome_trace(own), **settings) as prof:
            yield prof
        found = None
        if os.path.exists(own):
            with open(own) as f:
                found = json.load(f)
        write(g, recorder, path, found)
