"""The engine's groups as a backend of torch.distributed, for tensors on the CPU:

    import engine_dp.torch
    torch.distributed.init_process_group("engine")

DistributedDataParallel, FSDP and all else that uses torch.distributed then run over the engine's transport: with the
same bits for every algorithm, failures that name the rank, and, with options(), emulated networks.
"""

import collections
import contextlib
import ctypes
import datetime
import ipaddress
import os
import pathlib
import queue
import shutil
import socket
import tempfile
import threading
import time
import traceback
import types
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

import engine_dp_backend

_AGE = tuple(int(n) for n in torch.__version__.split(".")[:2])
if _AGE < (2, 0):
    raise ImportError(f"engine_dp.torch needs PyTorch 2.0 or newer, and this is {torch.__version__}: "
                      "pip install torch, in an environment without --system-site-packages")

from . import group as _group  # noqa: E402
from ._library import EngineError, check, library  # noqa: E402
from .profile import torch_trace as profile  # noqa: E402

__all__ = ["Backend", "ParameterServer", "ProcessGroup", "Work", "compress_hook", "options", "profile"]

# What of torch is used here and is private or undocumented: a new version may have changed it.
PRIVATE = (
    "torch.distributed._Work", "torch.distributed.ProcessGroup._get_backend",
    "torch.distributed.ProcessGroup._device_types", "torch._C._distributed_c10d.Backend",
    "torch.distributed.distributed_c10d._FR_SELF_RECORDING_BACKENDS",  # that older ones lack is no harm
    "torch.distributed.distributed_c10d._new_process_group_helper",  # it has the local variable 'backend'
    "torch._C._current_graph_task_id",
)

_TYPES = {getattr(torch, name): code for name, code in _group.TYPES.items()}
_SAME_BYTES = {torch.int8: torch.uint8, torch.bool: torch.uint8, torch.int16: torch.uint8, torch.complex64: torch.int64,
               torch.complex128: torch.float64}
_SAME_BYTES.update((getattr(torch, name), torch.uint8) for name in dir(torch)
                   if name in ("uint16", "uint32", "uint64", "complex32") or name.startswith("float8_"))
_WIDE = (torch.bool, torch.int8, torch.int16)  # added as int32
_NAMES = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "AVG": "avg", "BAND": "and", "BOR": "or",
          "BXOR": "xor"}
_OPS = {name: _group.OPS[ours] for name, ours in _NAMES.items()}
_SUM = int(dist.ReduceOp.SUM)
_WAITS = types.SimpleNamespace(asyncOp=False)  # options of a call that is over when it returns
_SMALL = 1 << 16  # bytes
_LATE = 75  # the exit code after a timeout
_NEVER_SENT = -(1 << 40)  # a tag
_NUMBERS = ("bandwidth", "latency")
_KNOWN = ("link", "algorithm", "order", "interface", "secure", "token", *_NUMBERS)


def _given() -> Dict[str, Any]:
    """The settings in ENGINE_DP_OPTIONS, as in "bandwidth=1e9,latency=50e-6,algorithm=ring"."""
    settings: Dict[str, Any] = {}
    for word in filter(None, os.environ.get("ENGINE_DP_OPTIONS", "").split(",")):
        key, equals, value = word.partition("=")
        if key not in _KNOWN or not equals:
            raise ValueError(f"ENGINE_DP_OPTIONS: '{word}' is not a setting: KEY=VALUE with {', '.join(_KNOWN)}")
        try:
            settings[key] = float(value) if key in _NUMBERS else value
        except ValueError:
            raise ValueError(f"ENGINE_DP_OPTIONS: '{value}' is not a number, as {key} needs") from None
    return settings


_settings = _given()


@contextlib.contextmanager
def options(**settings: Any) -> Iterator[None]:
    """Groups that are made inside have these settings of engine_dp.Group: link, algorithm, order, interface,
    secure, token, bandwidth, latency. options(bandwidth=1e9, latency=50e-6) gives each rank a port of 1 Gbit/s and 50 us. The variable
    ENGINE_DP_OPTIONS has settings for the whole program."""
    unknown = settings.keys() - set(_KNOWN)
    if unknown:
        raise TypeError(f"no setting {', '.join(sorted(unknown))}: {', '.join(_KNOWN)}")
    before = dict(_settings)
    _settings.update(settings)
    try:
        yield
    finally:
        _settings.clear()
        _settings.update(before)


# ---- tensors as memory ----


def _flat(t: torch.Tensor, added: bool) -> torch.Tensor:
    """The tensor's elements in order, in a type that the engine has: t's own memory if contiguous, else a copy."""
    if t.device.type != "cpu":
        raise ValueError(f"the backend 'engine' takes tensors on the CPU, not on {t.device}")
    if t.layout != torch.strided:
        raise ValueError(f"the backend 'engine' takes dense tensors here, not {t.layout}")
    if not t.is_contiguous():
        t = t.reshape(-1).contiguous()
    if t.dtype in _TYPES:
        return t
    if added or t.dtype not in _SAME_BYTES:
        raise ValueError(f"the backend 'engine' cannot {'add' if added else 'move'} tensors of {t.dtype}")
    return t.resolve_conj().view(-1).view(_SAME_BYTES[t.dtype])


def _addable(t: torch.Tensor) -> torch.Tensor:
    """t in a type that can be added: small integers and bool as int32, complex numbers as pairs."""
    return t.to(torch.int32) if t.dtype in _WIDE else torch.view_as_real(t.resolve_conj()) if t.is_complex() else t


class _Span:
    """A tensor on its way: 'flat' is what the engine sees; if that is a copy, finish() copies it back. written: it will
    be; then no two of its elements may be at one place, which is said before the ranks exchange anything."""

    def __init__(self, tensor: torch.Tensor, added: bool = False, written: bool = True):
        self.tensor = self.flat = tensor
        self.wide = False
        if not (tensor.layout is torch.strided and tensor.is_cpu and tensor.dtype in _TYPES and tensor.is_contiguous()):
            self._flatten(added, written)
        self.address, self.count, self.type = self.flat.data_ptr(), self.flat.numel(), _TYPES[self.flat.dtype]

    def _flatten(self, added: bool, written: bool) -> None:
        tensor = self.tensor
        self.tensor = tensor.detach()
        if written and not tensor.is_contiguous() and any(n > 1 and step == 0
                                                          for n, step in zip(tensor.shape, tensor.stride())):
            raise ValueError("a tensor that receives has several elements at one place of the memory, as expand() makes "
                             "it: use .contiguous() or .clone()")
        self.wide = added and tensor.dtype in _WIDE
        self.flat = _flat(_addable(self.tensor) if added else self.tensor, added)

    def finish(self) -> None:
        if self.flat is self.tensor:
            return
        if self.wide:
            self.tensor.copy_(self.flat.view(self.tensor.shape).to(self.tensor.dtype))
        elif self.flat.data_ptr() != self.tensor.data_ptr():
            self.tensor.copy_(self.flat.view(self.tensor.dtype).view(self.tensor.shape))


def _one_memory(parts: Sequence[torch.Tensor], like: _Span) -> Tuple[int, Optional[torch.Tensor]]:
    """Where all ranks' parts lie, one after another: the address, and the memory if it is a new one, of the type of 'like'."""
    first, t = parts[0].data_ptr(), like.tensor
    if all(p.is_cpu and p.dtype == t.dtype and p.is_contiguous() and p.data_ptr() == first + r * t.nbytes
           and not p.is_conj() for r, p in enumerate(parts)):
        return first, None
    whole = torch.empty((len(parts), t.numel()), dtype=t.dtype)
    return whole.data_ptr(), whole


def _hand_out(whole: Optional[torch.Tensor], parts: Sequence[torch.Tensor]) -> None:
    for p, w in zip(parts, () if whole is None else whole):
        p.detach().copy_(w.view(p.shape))


def _op(reduce_op: Any, tensor: torch.Tensor) -> int:
    kind = getattr(reduce_op, "op", reduce_op)
    if int(kind) == _SUM:
        return _OPS["SUM"]
    name = kind.name
    if name not in _OPS:
        raise ValueError(f"the backend 'engine' has no operation {name}: {', '.join(_OPS)}")
    if name[0] == "B" and tensor.dtype.is_floating_point:
        raise ValueError(f"{name} is for integers, not for {tensor.dtype}")
    if tensor.is_complex() and name not in ("SUM", "AVG"):
        raise ValueError(f"{name} is not for {tensor.dtype}")
    return _OPS[name]


def _only(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"one tensor is needed, and {len(tensors)} are given")
    return tensors[0]


def _as_torchs(e: Exception) -> dist.DistBackendError:
    message, newline, hint = str(e).partition("\n")
    if " within " in message and getattr(e, "code", 0) == _LATE:
        message += " (the timeout of the process group)"
    return dist.DistBackendError(message + newline + hint)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """The engine's errors as torch's."""
    try:
        yield
    except EngineError as e:
        raise _as_torchs(e) from None


# ---- works ----


class Work(dist._Work):
    """The work of a call. wait() waits for its parts in the order of their starts, then puts the results in place."""

    _source = -1
    _error: Optional[BaseException] = None
    _future: Optional[torch.futures.Future] = None

    def __init__(self, group: "_Calls", parts: List[_group.Work], result: List[torch.Tensor],
                 finish: Optional[Callable[[], None]] = None):
        super().__init__()
        self._group, self._parts, self._result, self._finish = group, parts, result, finish
        self._depth = _depth()
        self._over = not parts and not finish
        self._lock = None if self._over else threading.Lock()

    def _expire(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.is_completed():
            if time.monotonic() > end:
                raise dist.DistBackendError(f"the call has not ended within its timeout of {seconds:g} s")
            time.sleep(1e-4)

    def wait(self, timeout: Any = None) -> bool:
        if self._lock is None:
            return True
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else 0
        if seconds > 0:
            self._expire(seconds)
        with self._lock:
            if not self._over:
                try:
                    for part in self._parts:
                        part.wait()
                        self._source = part.source
                    if self._finish:
                        self._finish()
                except (EngineError, ValueError) as e:
                    self._error = _as_torchs(e)
                except Exception as e:  # of putting the results in place: it stays this call's error
                    self._error = e
                self._over = True
                self._parts, self._finish = [], None
        if self._error:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._over or all(part.done() for part in self._parts)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[BaseException]:
        if not self._over and self.is_completed():
            with contextlib.suppress(Exception):
                self.wait()
        return self._error

    def result(self) -> List[torch.Tensor]:
        return self._result

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def _values(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future:
        if self._future is None and self._over and not self._error:
            self._future = torch.futures.Future()
            self._future.set_result(self._result)
        if self._future is None:
            self._future = _Future(self._group._settler(self._depth), self._values)
        return self._future


# ---- futures ----
#
# The callbacks of a group's futures run on a thread of the group, one after another, in the order in which the program
# has asked for them, which is the same on all ranks. What a callback starts itself cannot keep to the order of the
# calls that the program starts meanwhile: the ranks would differ. So these calls go over a group of their own, one
# deeper, which is opened when it is first needed, and another thread runs the callbacks of these: a callback may wait
# for what it has started.

_DEEPEST = 4  # calls of callbacks of callbacks of ...: deeper ones share the last group
_thread = threading.local()


def _depth() -> int:
    """0 for the program's threads; n + 1 on the thread that runs the callbacks of calls of depth n."""
    return min(getattr(_thread, "depth", 0), _DEEPEST)


class _Future(torch.futures.Future):
    """Completed by a settler, in its turn, with what 'complete' returns or raises."""

    def __init__(self, settler: "_Settler", complete: Callable[[], Any]):
        super().__init__()
        self._settler = settler
        self._complete: Optional[Callable[[], Any]] = complete
        settler.put(self)

    def _settle(self) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            return
        try:
            value = complete()
        except BaseException as e:
            self.set_exception(e if isinstance(e, Exception) else RuntimeError(repr(e)))
        else:
            self.set_result(value)

    def wait(self) -> Any:
        if getattr(_thread, "settler", None) is self._settler:
            self._settle()  # a callback waits for what comes after it
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> "_Future":
        def complete() -> Any:
            with contextlib.suppress(Exception):  # which the callback is given
                self.wait()
            return callback(self)

        return _Future(self._settler, complete)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        def reported(future: Any) -> None:
            try:
                callback(future)
            except Exception:
                traceback.print_exc()

        self.then(reported)


class _Settler:
    """The thread that completes the futures of one depth of a group, in the order in which they were asked for."""

    def __init__(self, depth: int):
        self._futures: "queue.SimpleQueue[Optional[_Future]]" = queue.SimpleQueue()
        self.put = self._futures.put
        self._thread = threading.Thread(target=self._run, args=(depth,), daemon=True, name="engine futures")
        self._thread.start()

    def _run(self, depth: int) -> None:
        _thread.depth, _thread.settler = depth + 1, self
        for future in iter(self._futures.get, None):
            future._settle()
            del future  # it would keep its group from being dropped

    def end(self, patience: float) -> bool:
        """Whether the thread has ended, after all that it was given."""
        self.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(patience)
        return not self._thread.is_alive()


# ---- where the ranks meet ----

_PATIENCE = 5  # seconds: longer than rank 0 for what rank 0 tells; and for works with futures, when a rank leaves


def _host() -> str:
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id")
    return socket.gethostname() + (boot.read_text().strip() if boot.exists() else "")


def _address() -> str:
    """This host's address as others reach it: the one on the way to torch's own store, unless that is on this host and
    has an address that only this host knows; then the one on the way to other networks."""
    found = "127.0.0.1"
    for name in (os.environ.get("MASTER_ADDR", "192.0.2.1"), "192.0.2.1", "2001:db8::1"):
        with contextlib.suppress(OSError):
            family, _, _, _, to = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as s:
                s.connect(to)
                found = s.getsockname()[0]
            if not ipaddress.ip_address(found.partition("%")[0]).is_loopback:
                break
    return f"[{found}]" if ":" in found else found


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


class _Meeting:
    """Rank 0 says through torch's store where the engine's ranks meet: in a file if all are on one host, otherwise at a
    port of rank 0."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta):
        self.folder: Optional[str] = None
        self.store, self.timeout = store, min(timeout, getattr(store, "timeout", timeout))
        store.set(f"host/{rank}", _host())
        if rank == 0:
            store.set("init", self._place(size))
        if not self._comes("init", 0 if rank == 0 else _PATIENCE):
            raise dist.DistBackendError(self._missing(0))
        self.init = store.get("init").decode()
        if self.init.startswith("rank "):
            raise dist.DistBackendError(self.init)

    def _comes(self, key: str, longer: float) -> bool:
        try:
            self.store.wait([key], self.timeout + datetime.timedelta(seconds=longer))
            return True
        except RuntimeError:
            return False

    def _missing(self, rank: int) -> str:
        return f"rank {rank} has not come to open the group within {self.timeout.total_seconds():g} s"

    def _place(self, size: int) -> str:
        hosts = set()
        for r in range(size):
            if not self._comes(f"host/{r}", 0):
                return self._missing(r)
            hosts.add(self.store.get(f"host/{r}"))
        if len(hosts) > 1:
            return f"tcp://{_address()}:{_free_port()}"
        self.folder = tempfile.mkdtemp(prefix="engine-")
        return f"file://{self.folder}/ranks"

    def over(self) -> None:
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def _open(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta,
          settings: Dict[str, Any]) -> _group.Group:
    meeting = _Meeting(store, rank, size, timeout)
    try:
        with _told():
            near = {"link": "shm"} if meeting.init.startswith("file:") else {}  # known to be on one host: needs no port
            g = _group.Group(meeting.init, rank, size, timeout=timeout.total_seconds(), **{**near, **settings})
            g.near = bool(near) and not settings.keys() & {"link", *_NUMBERS}
            with g._waits():
                check(library().engine_barrier(g._open()))  # is not among the calls that are numbered for the user
    finally:
        meeting.over()
    return g


# ---- the backend ----


def _end_settling(settlers: Dict[int, _Settler], patience: Optional[float] = None) -> bool:
    """Ends the threads before Python ends: a thread that frees torch's objects after that aborts the process. The
    callbacks of one depth may start calls of the next, so that one comes after."""
    return all([settlers[depth].end(_PATIENCE if patience is None else patience) for depth in sorted(settlers)])


class _Calls:
    """Collectives of torch.distributed on self.engine, an engine_dp.Group."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta,
                 part: Optional[_group.Group] = None):
        """part: the group, if it has been split from another."""
        super().__init__(rank, size)  # type: ignore[call-arg]
        # The store may outlive the group, and have the keys of one that was opened before.
        store = dist.PrefixStore(f"engine/{store.add(f'engine/opened/{rank}', 1)}", store)
        self._settings = dict(_settings)
        self.engine = part or _open(store, rank, size, timeout, self._settings)
        self._rank, self._size = rank, size
        self._crowded = self.engine.near and len(os.sched_getaffinity(0)) < 2 * size  # no core is free beside the ranks
        self._store, self._timeout, self._monitored = store, timeout, 0
        self._watches: Dict[int, _group.Work] = {}
        self._settlers: Dict[int, _Settler] = {}
        self._settled = weakref.finalize(self, _end_settling, self._settlers)
        self._deeper: Dict[int, _group.Group] = {}  # by depth, for the calls of callbacks
        self._coalesced: Optional[List[Work]] = None
        # Torch 2.6 and older wait in C++ for ever for a work that Python has freed; 2.15 holds works itself.
        self._held: "collections.deque[Work]" = collections.deque(maxlen=4096)

    # -- what torch asks of any group --

    def getBackendName(self) -> str:
        return "engine"

    _get_backend_name = name = getBackendName

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank, getSize = rank, size

    supports_coalescing = False  # of messages: each is started separately

    def __repr__(self) -> str:
        return f"<engine_dp.torch.{type(self).__name__}: rank {self._rank} of {self._size}>"

    def abort(self) -> None:
        self._give_up(f"rank {self._rank} has aborted its process group")

    def _give_up(self, why: str) -> None:
        for g in (self.engine, *self._deeper.values()):
            with contextlib.suppress(ValueError):
                g.abort(why)

    def shutdown(self) -> None:
        if self._settled() is False:
            self._give_up(f"rank {self._rank} has left with work in flight")
            _end_settling(self._settlers, 12 * _PATIENCE)
        for g in (*self._deeper.values(), self.engine):
            g.close()

    def _settler(self, depth: int) -> _Settler:
        return self._settlers.get(depth) or self._settlers.setdefault(depth, _Settler(depth))

    def _lane(self) -> _group.Group:
        """The group over which this thread's calls go."""
        depth = _depth()
        if depth and depth not in self._deeper:
            store = dist.PrefixStore(f"engine/deeper/{depth}", self._store)
            with _told():
                self._deeper[depth] = _open(store, self._rank, self._size, self._timeout, self._settings)
            self._label_deeper()
        return self._deeper[depth] if depth else self.engine

    def _label_deeper(self) -> None:
        for g in list(self._deeper.values()):
            g.call_it(f"{self.engine.label}, calls of callbacks".lstrip(", "))

    def _start(self, name: str, *arguments: Any, opts: Any, keep: Any = None,
               over: Optional[_group.Group] = None) -> List[_group.Work]:
        """keep: what owns the memory that the call reads and writes. opts: torch's; since 2.8 they say whether torch waits
        at once. Then the call is over on return, and no part of it is left to wait for."""
        g = over or self._lane()
        try:
            if getattr(opts, "asyncOp", True):
                return [g._start(name, list(arguments), None, keep, False)]
            g._run(name, *arguments)
            return []
        except EngineError as e:
            raise _as_torchs(e) from None

    def _work(self, parts: List[_group.Work], result: Sequence[torch.Tensor],
              finish: Optional[Callable[[], None]] = None) -> Work:
        if finish and not parts:
            finish()
            finish = None
        work = Work(self, parts, list(result), finish)
        if _AGE < (2, 15):
            while self._held and self._held[0]._over:
                self._held.popleft()
            self._held.append(work)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, device: Any = None) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> Work:
        works, self._coalesced = self._coalesced or [], None

        def finish() -> None:
            for work in works:
                work.wait()

        return Work(self, [part for work in works for part in work._parts], [], finish)

    # -- sums --

    def _sum(self, tensors: Sequence[torch.Tensor], op: int, opts: Any) -> Work:
        spans = [_Span(t, True) for t in tensors]
        parts = [part for s in spans for part in self._start(
            "all_reduce", s.address, s.address, s.count, s.type, op, keep=s, opts=opts)]
        return self._work(parts, tensors, lambda: [s.finish() for s in spans])

    def _sum_sparse(self, t: torch.Tensor, op: int) -> Work:
        """Gathers the indices and values of all ranks, which differ in length, and adds them on every rank."""
        if op not in (_OPS["SUM"], _OPS["AVG"]):
            raise ValueError("sparse tensors can only be summed or averaged")
        t = t.coalesce()
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self._size)]
        self.allgather([counts], [torch.tensor([t.values().shape[0]])]).wait()
        most = int(max(counts))

        def gather(x: torch.Tensor) -> List[torch.Tensor]:
            whole = x.new_zeros((most, *x.shape[1:]))
            whole[:x.shape[0]] = x
            every = [torch.empty_like(whole) for _ in range(self._size)]
            self.allgather([every], [whole]).wait()
            return [e[:int(n)] for e, n in zip(every, counts)]

        indices, values = torch.cat(gather(t.indices().t().contiguous())), torch.cat(gather(t.values()))
        values = values / (self._size if op == _OPS["AVG"] else 1)
        total = torch.sparse_coo_tensor(indices.t(), values, t.shape).coalesce()
        return self._work([], [total])

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        if not tensors:
            return self._work([], [])
        op = _op(opts.reduceOp, tensors[0]) if opts is not None else 0
        if tensors[0].is_sparse:
            work = self._sum_sparse(_only(tensors), op)
            tensors[0].copy_(work._result[0])
            work._result = list(tensors)
            return work
        if not self._crowded or torch._C._current_graph_task_id() < 0:
            return self._sum(tensors, op, opts)
        # In backward, as DistributedDataParallel calls it. A thread of the group would take this one's core and cache.
        return self._sum(tensors, op, _WAITS)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        s = _Span(_only(tensors), True)
        parts = self._start("reduce", s.address, s.address, s.count, s.type,
                            _op(opts.reduceOp, s.tensor), self.engine._rank(opts.rootRank), keep=s, opts=opts)
        return self._work(parts, tensors, s.finish if self._rank == opts.rootRank else None)

    def _scatter_sum(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any) -> Work:
        """Each input is as large as all ranks' outputs, one after another."""
        parts, ends = [], []
        for out, x in zip(outputs, inputs):
            if x.numel() != out.numel() * self._size or x.dtype != out.dtype:
                raise ValueError(f"the input has {x.numel()} elements of {x.dtype}, and {self._size} ranks' outputs are "
                                 f"{out.numel() * self._size} of {out.dtype}")
            s, part = _Span(x, True, written=False), _Span(out, True)
            parts += self._start("reduce_scatter", s.address, part.address, part.count, s.type,
                                 _op(opts.reduceOp, x), keep=(s, part), opts=opts)
            ends.append(part.finish)
        return self._work(parts, outputs, lambda: [end() for end in ends])

    def reduce_scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any) -> Work:
        return self._scatter_sum([_only(outputs)], [torch.stack([t.detach() for t in inputs[0]])], opts)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self._scatter_sum([output], [input], opts)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                        opts: Any) -> Work:
        return self._scatter_sum(outputs, inputs, opts)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # -- moves --

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        s = _Span(_only(tensors))
        parts = self._start("broadcast", s.address, s.count, s.type,
                            self.engine._rank(opts.rootRank), keep=s, opts=opts)
        return self._work(parts, tensors, s.finish)

    def _gather_all(self, outputs: Sequence[Any], inputs: Sequence[torch.Tensor], opts: Any) -> Work:
        """outputs: for each input a tensor as large as all ranks' inputs, or a list of one tensor for each rank."""
        parts, ends = [], []
        for out, x in zip(outputs, inputs):
            s = _Span(x, written=False)
            if isinstance(out, torch.Tensor):
                if out.numel() != x.numel() * self._size or out.dtype != x.dtype:
                    raise ValueError(f"the output has {out.numel()} elements of {out.dtype}, and all ranks' inputs are "
                                     f"{x.numel() * self._size} of {x.dtype}")
                whole = _Span(out)
                address = whole.address
                ends.append(whole.finish)
            else:
                if len(out) != self._size or any(o.numel() != x.numel() or o.dtype != x.dtype for o in out):
                    raise ValueError(f"the outputs must be {self._size} tensors of {x.numel()} elements of {x.dtype}")
                address, whole = _one_memory(out, s)
                ends.append(lambda out=out, whole=whole: _hand_out(whole, out))
            parts += self._start("all_gather", s.address, address, s.count, s.type, keep=(s, out, whole), opts=opts)
        flat = [t for out in outputs for t in ([out] if isinstance(out, torch.Tensor) else out)]
        return self._work(parts, flat, lambda: [end() for end in ends])

    def allgather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        return self._gather_all(outputs, [_only(inputs)], opts)

    def allgather_coalesced(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor],
                            opts: Any = None) -> Work:
        """outputs: for each rank a list of one tensor for each input."""
        return self._gather_all([[of_rank[k] for of_rank in outputs] for k in range(len(inputs))], inputs,
                                opts)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        return self._gather_all([output], [input], opts)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor],
                                        opts: Any = None) -> Work:
        return self._gather_all(outputs, inputs, opts)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any) -> Work:
        s, root = _Span(_only(inputs), written=False), self.engine._rank(opts.rootRank)
        out, address, whole, n = [], None, None, inputs[0].numel()
        if self._rank == root:
            if len(outputs) != 1 or len(outputs[0]) != self._size or any(o.numel() != n for o in outputs[0]):
                raise ValueError(f"the root's outputs must be {self._size} tensors of {n} elements")
            out = outputs[0]
            address, whole = _one_memory(out, s)
        parts = self._start("gather", s.address, address, s.count, s.type, root, keep=(s, out, whole), opts=opts)
        return self._work(parts, out, lambda: _hand_out(whole, out))

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any) -> Work:
        s, root = _Span(_only(outputs)), self.engine._rank(opts.rootRank)
        address, whole, n = None, None, outputs[0].numel()
        if self._rank == root:
            if len(inputs) != 1 or len(inputs[0]) != self._size or any(x.numel() != n for x in inputs[0]):
                raise ValueError(f"the root's inputs must be {self._size} tensors of {n} elements")
            address, whole = _one_memory(inputs[0], s)
            for w, x in zip(() if whole is None else whole, inputs[0]):
                w.copy_(x.detach().reshape(-1))
        parts = self._start("scatter", address, s.address, s.count, s.type, root, keep=(s, inputs, whole), opts=opts)
        return self._work(parts, outputs, s.finish)

    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_splits: List[int],
                      input_splits: List[int], opts: Any = None) -> Work:
        def cuts(t: torch.Tensor, splits: List[int], unit: int) -> Any:
            rows = t.shape[0] if t.dim() else 0
            if not splits:
                if rows % self._size:
                    raise ValueError(f"{rows} rows cannot be cut into {self._size} equal parts")
                splits = [rows // self._size] * self._size
            if len(splits) != self._size or sum(splits) != rows:
                raise ValueError(f"the splits {splits} do not cut {rows} rows for {self._size} ranks")
            each = unit // rows if rows else 0
            at = [0]
            for n in splits:
                at.append(at[-1] + n * each)
            return (ctypes.c_longlong * (self._size + 1))(*at)

        a, b = _Span(input, written=False), _Span(output)
        if a.address < b.address + b.flat.nbytes and b.address < a.address + a.flat.nbytes:
            raise ValueError("the input and the output of all_to_all may not overlap, since others still read the input")
        parts = self._start("all_to_all_parts", a.address, cuts(input, input_splits, a.count), b.address,
                            cuts(output, output_splits, b.count), a.type, keep=(a, b), opts=opts)
        return self._work(parts, [output], b.finish)

    all_to_all_single = alltoall_base

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        x = torch.cat([t.detach().reshape(-1) for t in inputs])
        whole = x.new_empty(sum(o.numel() for o in outputs))
        work = self.alltoall_base(whole, x, [o.numel() for o in outputs], [t.numel() for t in inputs], opts)

        def finish() -> None:
            for o, w in zip(outputs, whole.split([o.numel() for o in outputs])):
                o.detach().copy_(w.view(o.shape))

        if work._over:
            finish()
        else:
            work._finish = finish
        work._result = list(outputs)
        return work

    # -- messages --

    def send(self, tensors: List[torch.Tensor], dst: int, tag: int = 0) -> Work:
        s = _Span(_only(tensors), written=False)
        here = self._crowded or (self.engine.near and s.flat.nbytes <= _SMALL)  # a thread would need more time than it saves
        parts = self._start("send", s.address, s.count, s.type, self.engine._peer(dst), tag, keep=s,
                            opts=_WAITS if here else None, over=self.engine)  # tags keep messages apart, whoever sends them
        return self._work(parts, tensors)

    def _receive(self, t: torch.Tensor, source: int, tag: int) -> Work:
        s = _Span(t)
        memory = _group._Memory(s.address, s.count, s.type, s, True)
        with _told():
            part = self.engine._recv(memory, source, tag, None)
        return self._work([part], [t], s.finish)

    def recv(self, tensors: List[torch.Tensor], src: int, tag: int = 0) -> Work:
        return self._receive(_only(tensors), self.engine._peer(src), tag)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        return self._receive(_only(tensors), _group._ANY, tag)

    # -- all together --

    def barrier(self, opts: Any = None) -> Work:
        return self._work(self._start("barrier", opts=opts), [])

    def _has_gone(self, peer: int) -> bool:
        """Whether the rank has died or left: a receive, of what nobody sends, has ended."""
        if peer not in self._watches:
            t = torch.zeros(1, dtype=torch.uint8)
            memory = _group._Memory(t.data_ptr(), 1, _TYPES[t.dtype], t, True)
            self._watches[peer] = self.engine._recv(memory, peer, _NEVER_SENT, None)
        return self._watches[peer].done()

    def _has_come(self, key: str, end: float, peer: int, grace: float) -> bool:
        """grace: seconds for which it still waits once a rank has died, which may be another one than 'peer'."""
        while not self._store.check([key]):
            if time.monotonic() > end:
                return False
            if self._size > 1 and self._has_gone(peer):
                end = min(end, time.monotonic() + grace)
            time.sleep(1e-3)
        return True

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Uses torch's store, so that a rank that does not come is named and the group remains usable. The errors begin
        as gloo's do, for scripts that look for them."""
        seconds = (self._timeout if timeout is None else timeout).total_seconds()
        self._monitored += 1
        here, end = f"engine/monitored/{self._monitored}", time.monotonic() + seconds
        self._store.set(f"{here}/{self._rank}", "")
        if self._rank == 0:
            if seconds <= 0:
                raise dist.DistBackendError(f"Rank 0 timed out in monitoredBarrier: its timeout is {seconds:g} s")
            late: List[int] = []
            for peer in range(1, self._size):
                if (wait_all_ranks or not late) and not self._has_come(f"{here}/{peer}", end, peer, _PATIENCE / 5):
                    late.append(peer)
            self._store.set(f"{here}/late", ", ".join(map(str, late)))
        # Rank 0 counts from when it came itself, and tells then who is late.
        elif not (self._has_come(f"{here}/0", end, 0, _PATIENCE)
                  and self._has_come(f"{here}/late", end + seconds + _PATIENCE, 0, _PATIENCE)):
            raise dist.DistBackendError(f"Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                                        "while waiting for send/recv from rank 0, which has not come within "
                                        f"{seconds:g} s")
        names = self._store.get(f"{here}/late").decode()
        if names and self._rank == 0:
            how = f"within {seconds:g} s" if time.monotonic() > end else "because of a death or an early end"
            raise dist.DistBackendError(f"Rank{'s' if ',' in names else ''} {names} failed to pass monitoredBarrier {how}")
        if names:
            raise dist.DistBackendError(f"Rank {self._rank} successfully reached monitoredBarrier, but received errors "
                                        f"while waiting for send/recv from rank 0, which misses rank {names}")


class ProcessGroup(_Calls, dist.ProcessGroup):
    """The whole of a group whose only backend is the engine."""

    _name = _about = ""

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu")]

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name
        self._label()

    def getGroupDesc(self) -> str:
        return self._about

    def setGroupDesc(self, about: str) -> None:
        self._about = about
        self._label()

    def _label(self) -> None:
        self.engine.call_it(f"process group {self._name}, {self._about}".rstrip(", "))
        self._label_deeper()

    def _get_backend(self, device: Any = None) -> "ProcessGroup":
        return self

    supports_splitting = True

    def split_group(self, ranks: List[int], timeout: Optional[datetime.timedelta] = None, opts: Any = None,
                    group_name: str = "", group_desc: Optional[str] = None,
                    device_types: Any = None) -> Optional["ProcessGroup"]:
        """What torch's split_group asks of the group: 'ranks' are those of this rank's part, if it is in one."""
        mine = self._rank in ranks
        with _told():
            part = self.engine.split(min(ranks) if mine else -1, ranks.index(self._rank) if mine else 0)
        if part is None:
            return None
        part.near = self.engine.near
        store = dist.PrefixStore(f"engine/split/{group_name}", self._store)
        group = ProcessGroup(store, part.rank, part.size, timeout or self._timeout, part)
        group._name, group._about = group_name, group_desc or f"split from {self._name}"
        group._label()
        return group

    def get_group_store(self) -> dist.Store:
        return self._store


class Backend(_Calls, torch._C._distributed_c10d.Backend):
    """Serves the tensors on the CPU of a group that has other backends, too. Through torch, its works do not give the
    rank from which a message came."""


engine_dp_backend.register()

from .compress import compress_hook  # noqa: E402
from .server import ParameterServer  # noqa: E402
