"""Ranks that exchange and add arrays.

Start N processes of a script with 'engine launch -n N python script.py', torchrun, mpirun or srun; each opens a Group.
Every rank makes the same calls in the same order. If a rank dies, stops, or calls something else, an EngineError names
it on all others; a group that has failed stays failed.

Arrays are numpy's, or anything that lies in the host's memory and has a buffer, DLPack, or torch's data_ptr.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import weakref
from concurrent.futures import Future
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Union

import numpy

from ._library import EngineError, Init, Stats, check, library

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5, "uint8": 6}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4, "and": 5, "or": 6, "xor": 7}
_MANY, _MOST = 128, 250  # calls that nobody has waited for: the library has room for 256
_ANY = -1
_BITS = ("and", "or", "xor")
_MOVED_AS = {"bool": 6, "int8": 6}  # copied as bytes, never added


class _Memory(NamedTuple):
    address: int
    count: int
    type: int
    keep: Any  # owns the memory
    moved: bool  # its type cannot be added


def _tensor_memory(x: Any) -> _Memory:
    """The memory of a torch tensor, without importing torch."""
    name = str(x.dtype).rpartition(".")[2]
    if x.device.type != "cpu" or not x.is_contiguous():
        raise TypeError("a tensor must lie contiguously in the host's memory: use .cpu().contiguous()")
    return _Memory(x.data_ptr(), x.numel(), _type(name), x, name in _MOVED_AS)


def _type(name: str) -> int:
    code = TYPES.get(name, _MOVED_AS.get(name))
    if code is None:
        raise TypeError(f"arrays of {name} cannot be exchanged: {', '.join([*TYPES, *_MOVED_AS])} can")
    return code


def _array(x: Any) -> numpy.ndarray:
    if isinstance(x, numpy.ndarray):
        return x
    try:
        return numpy.asarray(memoryview(x))
    except TypeError:
        pass
    if hasattr(x, "__dlpack__"):
        return numpy.from_dlpack(x)
    raise TypeError(f"a {type(x).__name__} is no array: it has neither a buffer nor DLPack")


def _memory(x: Any, written: bool) -> _Memory:
    if hasattr(x, "data_ptr"):
        return _tensor_memory(x)
    a = _array(x)
    if not a.flags.c_contiguous:
        raise TypeError("an array must be contiguous: use numpy.ascontiguousarray")
    if not a.dtype.isnative:
        raise TypeError(f"an array must have this machine's byte order, and {a.dtype.str} has not: "
                        "use x.astype(x.dtype.newbyteorder('='))")
    if written and not a.flags.writeable:
        raise TypeError("an array that receives must be writable")
    return _Memory(a.ctypes.data, a.size, _type(a.dtype.name), a, a.dtype.name in _MOVED_AS)


def _like(x: Any, times: Optional[int] = None, part: Optional[int] = None) -> Any:
    """A new array of x's type: with x's shape, with a new dimension of 'times', or one of 'part' parts of x's shape."""
    shape = tuple(x.shape) if hasattr(x, "shape") else _array(x).shape
    if times is not None:
        shape = (times, *shape)
    if part is not None:
        if not shape or shape[0] % part:
            raise ValueError(f"the first dimension, {shape[0] if shape else 0}, cannot be cut into {part} equal parts")
        shape = (shape[0] // part, *shape[1:])
    if hasattr(x, "data_ptr"):
        return x.new_empty(shape)
    return numpy.empty(shape, _array(x).dtype)


def _whole(value: int, bits: int, what: str) -> int:
    """A number as the library takes it; ctypes would cut a larger one to another."""
    if not -1 << bits - 1 <= value < 1 << bits - 1:
        raise ValueError(f"a {what} has {bits} bits, and {value} has more")
    return value


class Work:
    """A call that runs beside the caller's own work. Do not touch its arrays before wait() has returned. A work that
    nobody waits for keeps its arrays until it has ended."""

    def __init__(self, group: "Group", handle: ctypes.c_void_p, result: Any, keep: Any):
        self._group, self._handle, self._result = group, handle, result
        group._kept[id(self)] = keep
        self._lock = threading.Lock()
        self._error: Optional[BaseException] = None
        self._source = ctypes.c_int(_ANY)

    @property
    def source(self) -> int:
        """The rank that sent the message, for a recv after wait()."""
        return self._source.value

    def done(self) -> bool:
        """Whether wait() would return at once."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread is in wait()
        try:
            return self._handle is None or self._group._handle is None or bool(library().engine_work_done(self._handle))
        finally:
            self._lock.release()

    def wait(self) -> Any:
        """Waits for the call and gives its result."""
        with self._lock:
            if self._handle is not None:
                inside = self._group._inside
                inside.append(None)
                try:
                    self._group._open()
                    check(library().engine_work_wait(self._handle))
                except BaseException as e:
                    self._error = e
                finally:
                    inside.pop()
                self._handle = None
                self._group._kept.pop(id(self), None)
                self._group._flying.pop(self, None)
                self._group._asked.pop(self, None)
        if self._error:
            raise self._error
        return self._result


class Statistics(NamedTuple):
    sent: int  # bytes to other ranks
    received: int
    calls: int
    busy: float  # seconds


_groups: "weakref.WeakSet[Group]" = weakref.WeakSet()  # that are open in this process
_FORKED = ("this process was forked from one that had opened the group, which cannot be shared: open groups in the "
           "process that uses them")


def _close(handle: ctypes.c_void_p, parts: List["weakref.finalize"], kept: Dict[int, Any],
           inside: List[None]) -> None:
    """Once a group is closed, dropped, or left open at the end of the program. Arrays live until no call uses them."""
    for part in parts:
        part()
    if inside:  # a thread waits, perhaps at the end of the program
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        return
    library().engine_group_close(handle)
    kept.clear()


def _after_fork() -> None:
    for g in list(_groups):
        g._handle, g._why = None, _FORKED
        g._closing.detach()
    _groups.clear()
    if _wakeup >= 0:  # its reader is the parent
        now = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(now if now != _wakeup else -1)


os.register_at_fork(after_in_child=_after_fork)
_watch: Optional[Callable[["Group"], None]] = None  # reads a group's record before its old calls are lost (profile.py)

# ---- Ctrl-C ----
#
# Python runs the handler of a signal on the main thread, once that thread is back from the library. If it waits there,
# the group must fail first. To wait in slices would cost each call a change of threads. So another thread learns of the
# signal by Python's wakeup descriptor. It does nothing where the program has a handler of its own, or where the main
# thread goes on by itself.

_wakeup = -1  # Python writes the numbers of signals to it


def _main_is_stuck() -> bool:
    """Whether the main thread stays in one call of C."""
    def place() -> Any:
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return frame, frame and frame.f_lasti

    before = place()
    time.sleep(0.25)
    return bool(place() == before)


def _hear_interrupts() -> None:
    """On the main thread alone, as Python demands. A descriptor that was set before still gets the numbers."""
    global _wakeup
    if _wakeup >= 0 or threading.current_thread() is not threading.main_thread():
        return
    reader, _wakeup = os.pipe()
    os.set_blocking(_wakeup, False)
    before = signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)

    def run() -> None:
        for numbers in iter(lambda: os.read(reader, 256), b""):
            if before >= 0:
                with contextlib.suppress(OSError):
                    os.write(before, numbers)
            default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            for g in list(_groups) if signal.SIGINT in numbers and default and _main_is_stuck() else ():
                if g._inside:
                    with contextlib.suppress(ValueError), g._waits():
                        g.abort("it was interrupted (Ctrl-C)")

    threading.Thread(target=run, daemon=True, name="engine interrupts").start()


def _open_beside(params: Init, handle: ctypes.c_void_p) -> None:
    """Opens a group on another thread. Nothing can fail a group that is not open yet, but Ctrl-C ends this wait."""
    opened: "Future[None]" = Future()

    def run() -> None:
        try:
            check(library().engine_group_open(ctypes.byref(params), ctypes.byref(handle)))
            opened.set_result(None)
        except BaseException as e:
            if opened.cancelled():
                library().engine_group_close(handle)
            else:
                opened.set_exception(e)

    threading.Thread(target=run, daemon=True, name="engine opening").start()
    try:
        opened.result()
    finally:
        opened.cancel()  # if Ctrl-C has ended the wait


class Group:
    """The ranks of this job.

    init, rank, size: how they find each other, as in ("tcp://host:port" or "file:///path", 0, 2). If these are not
    given, the environment that the launcher has set says it; without a launcher it is a group of one. link: auto, shm,
    tcp, hosts. algorithm: auto, direct, ring, star, tree, halving_doubling, hierarchical. order of addition: tree gives
    the same bits for every algorithm; ring depends on the number of ranks. secure: what guards messages between hosts:
    auto, off, sealed, encrypted. timeout: seconds without progress. bandwidth (bits per second) and latency (seconds)
    are those of each rank's emulated port.

    Every method that exchanges has wait=False, which gives a Work instead of the result. A rank's calls run in the
    order in which they are made, except for messages (send and recv), which run beside them.
    """

    def __init__(self, init: Optional[str] = None, rank: int = 0, size: int = 0, *, token: Optional[str] = None,
                 link: Optional[str] = None, algorithm: Optional[str] = None, order: Optional[str] = None,
                 interface: Optional[str] = None, secure: Optional[str] = None, timeout: float = 60, bandwidth: float = 0,
                 latency: float = 0):
        def text(s: Optional[str]) -> Optional[bytes]:
            return s.encode() if s is not None else None

        self._begin()
        handle = ctypes.c_void_p()
        params = Init(text(init), rank, size, text(token), text(link), text(algorithm), text(order), text(interface),
                      text(secure), timeout, bandwidth, latency)
        _open_beside(params, handle)
        self._take(handle)

    def _begin(self) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        self._why = "the group is closed"
        self._parts: List["Group"] = []
        self._whole: Optional["Group"] = None  # which this one was split from, and which outlives it
        self._lock = threading.Lock()
        self._looks = self._watched = 0
        self._flying: Dict[Work, None] = {}  # works that nobody has waited for yet, the oldest first
        self._asked: Dict[Work, None] = {}  # receives, of which any number may be in progress
        self._full, self._tidy = _MANY, _MANY  # with this many of them, those that have ended are dropped
        self._kept: Dict[int, Any] = {}  # what owns the memory of works that have not ended
        self._inside: List[None] = []  # as many as there are threads that wait

    def _take(self, handle: ctypes.c_void_p) -> None:
        self._handle = handle
        self._part_closings: List["weakref.finalize"] = []
        self._closing = weakref.finalize(self, _close, handle, self._part_closings, self._kept, self._inside)
        self.rank: int = library().engine_group_rank(handle)
        self.size: int = library().engine_group_size(handle)
        self.name: str = library().engine_group_name(handle).decode()
        self.label = ""
        self.near = False  # whether all ranks are known to share this host's memory
        _groups.add(self)
        if self.size > 1:
            _hear_interrupts()

    @contextlib.contextmanager
    def _waits(self) -> Iterator[None]:
        """Around what waits in the library: Ctrl-C fails the group, and nothing frees it."""
        self._inside.append(None)
        try:
            yield
        finally:
            self._inside.pop()

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind, error, trace) -> None:
        failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
        if failed and self._handle is not None:
            self.abort(f"{kind.__name__}: {error}")
        self.close()

    def __repr__(self) -> str:
        return f"<engine_dp.Group: {'closed' if self._handle is None else f'rank {self.rank} of {self.size}'}>"

    def close(self) -> None:
        """Leaves the group and the groups that were split from it, without waiting for other ranks."""
        for part in self._parts:
            part.close()
        if self._handle is not None:
            if _watch:
                _watch(self)
            _groups.discard(self)
            self._handle = None
            self._closing()
        self._flying.clear()
        self._asked.clear()

    def abort(self, reason: str) -> None:
        """Fails the group on every rank; the others' calls raise an EngineError with this reason."""
        library().engine_group_abort(self._open(), reason.encode())

    def split(self, color: int, key: int = 0) -> Optional["Group"]:
        """A group of the ranks that give the same color, ordered by key, then by rank; None if color is below 0."""
        handle = ctypes.c_void_p()
        with self._waits():
            check(library().engine_group_split(self._open(), _whole(color, 32, "color"), _whole(key, 32, "key"),
                                               ctypes.byref(handle)))
        if not handle:
            return None
        part = Group.__new__(Group)
        part._begin()
        part._take(handle)
        part._whole = self
        self._parts.append(part)
        self._part_closings.append(part._closing)
        return part

    def call_it(self, label: str) -> None:
        """Sets what the group is for, to be shown in 'engine inspect' and in traces."""
        self.label = label
        library().engine_group_label(self._open(), label.encode())

    def choice(self, bytes: int) -> str:
        """Which algorithm adds this many bytes, and why."""
        return library().engine_group_choice(self._open(), bytes).decode()

    def statistics(self) -> Statistics:
        """What this rank has exchanged."""
        s = Stats()
        library().engine_group_stats(self._open(), ctypes.byref(s))
        return Statistics(s.sent, s.received, s.calls, s.busy)

    def trace(self, path: Any) -> "contextlib.AbstractContextManager[None]":
        """with g.trace("trace.json"): what all ranks call inside, in all groups, becomes one file for Perfetto or
        chrome://tracing, which rank 0 writes at the end. It has a row for each group, with the kind, bytes and time of
        each call, and how long it waited for which rank; and rows of its messages. All ranks of g enter and leave
        together."""
        from .profile import trace
        return trace(self, path)

    def empty(self, shape: Union[int, tuple], dtype: Any = "float32") -> numpy.ndarray:
        """An array of zeros that the other ranks reach without a copy. All ranks ask for the same size; it lives as
        long as the group."""
        kind = numpy.dtype(dtype)
        count = int(numpy.prod(shape, dtype=numpy.int64))
        if count < 0:
            raise ValueError(f"an array of shape {shape} is not possible")
        address = ctypes.c_void_p()
        with self._waits():
            check(library().engine_group_alloc(self._open(), count * kind.itemsize, ctypes.byref(address)))
        if not count:
            return numpy.empty(shape, kind)
        buffer = (ctypes.c_char * (count * kind.itemsize)).from_address(address.value)
        buffer._group = self  # type: ignore[attr-defined]
        return numpy.frombuffer(buffer, kind, count).reshape(shape)

    # ---- calls ----

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError(self._why)
        return self._handle

    def _rank(self, r: int) -> int:
        """The rank of a root or peer, before the library is asked: its errors fail the group."""
        if not 0 <= r < self.size:
            raise ValueError(f"rank {r} does not exist: the group has ranks 0 to {self.size - 1}")
        return r

    def _peer(self, r: int) -> int:
        if r == self.rank:
            raise ValueError(f"rank {r} cannot exchange messages with itself")
        return self._rank(r)

    def _start(self, name: str, arguments: list, result: Any, keep: Any, wait: bool) -> Any:
        if wait:
            self._run(name, *arguments)
            return result
        handle = ctypes.c_void_p()
        self._make_room()
        with self._lock:
            check(getattr(library(), f"engine_{name}_start")(self._open(), *arguments, ctypes.byref(handle)))
            work = Work(self, handle, result, keep)
            self._flying[work] = None
        return work

    def _run(self, name: str, *arguments: Any) -> None:
        """Makes a call on this thread."""
        lib, handle = library(), ctypes.c_void_p()
        self._make_room()
        with self._lock:
            lib.engine_group_wait_at_once(self._open())
            check(getattr(lib, f"engine_{name}_start")(self._handle, *arguments, ctypes.byref(handle)))
        self._inside.append(None)
        try:
            check(lib.engine_work_wait(handle))
        finally:
            self._inside.pop()

    def _make_room(self) -> None:
        """Before each call. A trace reads the record now and then."""
        if len(self._flying) >= self._full:
            self._land()
        self._look()

    def _look(self) -> None:
        """Before each call: a trace reads the record now and then."""
        self._looks += 1
        if _watch and self._looks - self._watched >= _MANY:
            self._watched = self._looks
            _watch(self)

    def _land(self) -> None:
        """Forgets the works that have ended, and waits for the oldest if there is no room for another."""
        self._forget(self._flying)
        for work in list(self._flying):
            if len(self._flying) < _MOST:
                break
            with contextlib.suppress(EngineError):
                work.wait()
        self._full = min(_MOST, max(_MANY, 2 * len(self._flying)))

    @staticmethod
    def _forget(works: Dict[Work, None]) -> None:
        for work in list(works):
            if work.done():
                with contextlib.suppress(EngineError):  # the caller's own wait() raises it
                    work.wait()

    def _op(self, op: str, memory: _Memory) -> int:
        if op not in OPS:
            raise ValueError(f"no operation '{op}': one of {', '.join(OPS)}")
        if memory.moved:
            raise TypeError("arrays of bool and int8 can be moved, not added")
        if op in _BITS and memory.type < TYPES["int32"]:
            raise TypeError(f"{op} is for integers")
        return OPS[op]

    @staticmethod
    def _fit(out: _Memory, x: _Memory, times: int, what: str) -> None:
        if out.type != x.type or out.count != x.count * times:
            raise ValueError(f"out must be of x's type, with {x.count * times} elements for {what}; it has {out.count}")

    def all_reduce(self, x: Any, op: str = "sum", out: Any = None, wait: bool = True) -> Any:
        """The sum (prod, min, max, avg, and, or, xor) of all ranks' x, on every rank; out may be x itself."""
        out = _like(x) if out is None else out
        a, b = _memory(x, False), _memory(out, True)
        self._fit(b, a, 1, "all_reduce")
        return self._start("all_reduce", [a.address, b.address, a.count, a.type, self._op(op, a)], out, (x, out), wait)

    def reduce(self, x: Any, root: int = 0, op: str = "sum", wait: bool = True) -> Any:
        """The same on root only; None on the others."""
        out = _like(x) if self.rank == root else None
        a = _memory(x, False)
        to = _memory(out, True).address if out is not None else None
        return self._start("reduce", [a.address, to, a.count, a.type, self._op(op, a), self._rank(root)], out, (x, out), wait)

    def broadcast(self, x: Any, root: int = 0, wait: bool = True) -> Any:
        """x becomes root's x, in place."""
        a = _memory(x, True)
        return self._start("broadcast", [a.address, a.count, a.type, self._rank(root)], x, x, wait)

    def all_gather(self, x: Any, out: Any = None, wait: bool = True) -> Any:
        """All ranks' x, one after another: an array with one more dimension."""
        out = _like(x, times=self.size) if out is None else out
        a, b = _memory(x, False), _memory(out, True)
        self._fit(b, a, self.size, "all_gather")
        return self._start("all_gather", [a.address, b.address, a.count, a.type], out, (x, out), wait)

    def all_to_all(self, x: Any, out: Any = None, wait: bool = True) -> Any:
        """x is cut along its first dimension into as many parts as there are ranks. Part r goes to rank r, and rank r's
        part for this rank comes back in its place."""
        _like(x, part=self.size)
        out = _like(x) if out is None else out
        a, b = _memory(x, False), _memory(out, True)
        self._fit(b, a, 1, "all_to_all")
        if abs(a.address - b.address) < a.keep.nbytes:
            raise ValueError("x and out of all_to_all may not overlap, since others still read x")
        return self._start("all_to_all", [a.address, b.address, a.count // self.size, a.type], out, (x, out), wait)

    def gather(self, x: Any, root: int = 0, wait: bool = True, out: Any = None) -> Any:
        """All ranks' x on root, as all_gather gives them; None on the others."""
        if self.rank != root:
            out = None
        elif out is None:
            out = _like(x, times=self.size)
        a, b = _memory(x, False), None if out is None else _memory(out, True)
        if b:
            self._fit(b, a, self.size, "gather")
        return self._start("gather", [a.address, b and b.address, a.count, a.type, self._rank(root)], out, (x, out), wait)

    def scatter(self, x: Any, out: Any, root: int = 0, wait: bool = True) -> Any:
        """Part r of root's x, cut along its first dimension, goes into rank r's out. Only root's x is read."""
        a, b = _memory(x, False) if self.rank == root else None, _memory(out, True)
        if a:
            self._fit(a, b, self.size, "scatter (x)")
        return self._start("scatter", [a and a.address, b.address, b.count, b.type, self._rank(root)], out, (x, out), wait)

    def reduce_scatter(self, x: Any, op: str = "sum", wait: bool = True, out: Any = None) -> Any:
        """Part r of the sum of all ranks' x, cut along its first dimension, on rank r."""
        out = _like(x, part=self.size) if out is None else out
        a, b = _memory(x, False), _memory(out, True)
        self._fit(a, b, self.size, "reduce_scatter (x)")
        arguments = [a.address, b.address, b.count, a.type, self._op(op, a)]
        return self._start("reduce_scatter", arguments, out, (x, out), wait)

    def send(self, x: Any, to: int, tag: int = 0, wait: bool = True) -> Any:
        """Sends x to one rank, which receives it with the same tag, sooner or later; nothing here waits for that."""
        a = _memory(x, False)
        return self._start("send", [a.address, a.count, a.type, self._peer(to), _whole(tag, 64, "tag")], None, x,
                           wait)

    def recv(self, out: Any, source: Optional[int] = None, tag: int = 0, wait: bool = True) -> Any:
        """Receives into out what rank 'source' sends with the tag; messages with one tag from one rank come in the
        order in which they were sent. With source None it receives from any rank, and gives (out, rank)."""
        work = self._recv(_memory(out, True), _ANY if source is None else self._peer(source), tag, out)
        if not wait:
            return work
        work.wait()
        return out if source is not None else (out, work.source)

    def _recv(self, a: _Memory, source: int, tag: int, result: Any) -> Work:
        handle = ctypes.c_void_p()
        work = Work(self, handle, result, a.keep)
        if len(self._asked) >= self._tidy:
            self._forget(self._asked)
            self._tidy = max(_MANY, 2 * len(self._asked))
        self._look()
        with self._lock:
            try:
                check(library().engine_recv_start(self._open(), a.address, a.count, a.type, source, _whole(tag, 64, "tag"),
                                                  ctypes.byref(work._source), ctypes.byref(handle)))
            except BaseException:
                del self._kept[id(work)]
                raise
            self._asked[work] = None
        return work

    def barrier(self, wait: bool = True) -> Any:
        """Returns when all ranks are there."""
        return self._start("barrier", [], None, None, wait)
