"""A parameter server for any PyTorch module: servers that hold the optimizer do what DistributedDataParallel does with
an all-reduce. It uses torch.distributed alone, so it runs over every backend.

    ps = ParameterServer(module, functools.partial(torch.optim.SGD, lr=0.1), server="shared")
    loss_of(ps(x)).backward()
    ps.step()

    workers   gradients -> server      a message for each bucket, while backward still runs
    server    adds them in tree order, steps the optimizer
    server    weights   -> workers

Bytes of a step with K bytes of gradients and N ranks: with shared and dedicated, (N-1) K go into the server's port and
as many out of it; with sharded, (N-1)/N K of gradients and as many of weights go into and out of every port, which is
what an all-reduce moves.
"""

import contextlib
import copy
import itertools
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
import torch.distributed as dist
from torch import nn

KINDS = ("shared", "dedicated", "sharded")
FIRST_BUCKET = 1 << 20  # bytes, as in DistributedDataParallel: the exchange begins early
_OF_WHOLE_TENSORS = ("Adafactor", "Muon")  # optimizers that cannot step a part of a tensor
_tags = itertools.count(1 << 20)  # of the servers of this process, apart from tags that a script may use itself


class _Bucket:
    """Parameters of one type. All their values lie in one tensor and all their gradients in another; these travel."""

    def __init__(self, params: List[nn.Parameter], parts: int):
        ends = list(itertools.accumulate(p.numel() for p in params))
        self.span = {p: (end - p.numel(), end) for p, end in zip(params, ends)}
        n = -(-ends[-1] // parts) * parts
        self.values = params[0].new_zeros(n, requires_grad=False)
        self.grads = torch.zeros_like(self.values)
        self.missing = set(params)  # those whose gradients are not there yet
        for p, (a, b) in self.span.items():
            self.values[a:b] = p.detach().reshape(-1)
            p.data = self.values[a:b].view(p.shape)


def _cut(params: Iterable[nn.Parameter], cap: int, parts: int) -> List[_Bucket]:
    """Buckets in the order in which backward finishes the parameters: the last layer's come first."""
    buckets: List[_Bucket] = []
    opened: Dict[Any, List[nn.Parameter]] = {}
    for p in reversed(list(params)):
        group = opened.setdefault((p.dtype, p.device), [])
        group.append(p)
        if sum(q.numel() * q.element_size() for q in group) >= (cap if buckets else min(cap, FIRST_BUCKET)):
            buckets.append(_Bucket(opened.pop((p.dtype, p.device)), parts))
    return buckets + [_Bucket(group, parts) for group in opened.values()]


class _Piece(NamedTuple):
    """The part of a parameter that the optimizer steps on this rank: its elements [begin, end)."""

    step: nn.Parameter  # 'of' itself, or a view of a part of it
    of: nn.Parameter
    begin: int
    end: int
    total: torch.Tensor  # the sum of its gradients


class _Message:
    """Tensors as one message of bytes. They are looked up each time, as a module may put others in their place."""

    def __init__(self, of: Callable[[], Iterable[torch.Tensor]]):
        self.of = of
        self.sizes = self._sizes()
        self.bytes = torch.zeros(sum(self.sizes), dtype=torch.uint8, device=next(iter(of())).device)

    def _sizes(self) -> List[int]:
        return [t.numel() * t.element_size() for t in self.of()]

    def _parts(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        sizes = self._sizes()
        if sizes != self.sizes:
            raise RuntimeError(f"the module's buffers had {sum(self.sizes)} bytes at the beginning and now have "
                               f"{sum(sizes)}: none may change its size, unless broadcast_buffers=False keeps each "
                               "rank's apart")
        return zip(self.of(), self.bytes.split(sizes))

    def pack(self) -> torch.Tensor:
        for t, to in self._parts():
            to.copy_(t.detach().contiguous().view(-1).view(torch.uint8))
        return self.bytes

    def unpack(self) -> None:
        for t, source in self._parts():
            t.detach().copy_(source.clone().view(t.dtype).view(t.shape))


def _tree(terms: List[torch.Tensor]) -> torch.Tensor:
    """Adds up in the first term, in the engine's tree order: 0 with 1, 2 with 3, then these sums likewise."""
    while len(terms) > 1:
        terms = [terms[i].add_(terms[i + 1]) if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


# ---- one server: rank 0 ----


class _Star:
    def __init__(self, ps: "ParameterServer"):
        self.ps, self.server, self.others = ps, ps.rank == 0, range(1, ps.size)
        self.begun = False
        self.works: List[Any] = []
        self.sums = [b.grads for b in ps._buckets] + ps._flags  # a rank's own, and on the server in the end the total
        self.weights = [b.values for b in ps._buckets]
        self.inbox: List[List[torch.Tensor]] = []
        if self.server:  # a dedicated server receives the first worker's into its own tensors
            own = 1 if ps._dedicated else 0
            self.inbox = [[t] * own + [torch.empty_like(t) for _ in self.others[own:]] for t in self.sums]

    def _send(self, t: torch.Tensor, to: int) -> Any:
        return dist.isend(t, group=self.ps._group, group_dst=to)

    def _recv(self, t: torch.Tensor, source: int) -> Any:
        return dist.irecv(t, group=self.ps._group, group_src=source)

    def begin(self) -> None:
        """The server receives while it computes or waits."""
        if self.server and not self.begun:
            self.works = [[self._recv(t, r) for t, r in zip(inbox, self.others)] for inbox in self.inbox]
        self.begun = True

    def leave(self, k: int) -> None:
        if not self.server:
            self.works.append(self._send(self.sums[k], 0))

    def _take_buffers(self) -> None:
        """A dedicated server takes the first worker's buffers, as it computes none itself."""
        if self.ps._dedicated and self.ps._moved:
            self._recv(self.ps._moved.bytes, 1).wait()
            self.ps._moved.unpack()

    def _give_weights(self, to: Iterable[int]) -> List[Any]:
        buffers = [self.ps._moved.pack()] if self.ps._moved else []
        return [self._send(t, r) for t in self.weights + buffers for r in to]

    def _serve(self) -> None:
        for works in self.works:
            for work in works:
                work.wait()
        for own, inbox in zip(self.sums, self.inbox):
            _tree(inbox if self.ps._dedicated else [own, *inbox])
        self._take_buffers()
        self.ps._update()
        for work in self._give_weights(self.others):
            work.wait()

    def get_weights(self) -> None:
        buffers = self.ps._moved
        self.works += [self._recv(t, 0) for t in self.weights + ([buffers.bytes] if buffers else [])]
        for work in self.works:
            work.wait()
        if buffers:
            buffers.unpack()

    def _work(self) -> None:
        for k in range(len(self.ps._buckets), len(self.sums)):
            self.leave(k)
        if self.ps._dedicated and self.ps._moved and self.ps.rank == 1:
            self.works.append(self._send(self.ps._moved.pack(), 0))
        self.get_weights()
        self.ps._update()  # a worker has no pieces, so this changes no weights

    def step(self) -> None:
        self.begin()
        if self.server:
            self._serve()
        else:
            self._work()
        self.works, self.begun = [], False

    def meet(self) -> None:
        """All ranks have the same weights already."""

    def clip(self, used: List[nn.Parameter], most: float) -> None:
        """As torch does it with the module's gradients, with the same bits."""
        if not self.server:
            return
        for p in used:
            b = self.ps._bucket[p]
            p.grad = b.grads[slice(*b.span[p])].view(p.shape)
        nn.utils.clip_grad_norm_(used, most)
        for p in used:
            p.grad = None

    def pieces(self, p: nn.Parameter, b: _Bucket) -> List[_Piece]:
        begin, end = b.span[p]
        return [_Piece(p, p, 0, end - begin, b.grads[begin:end])] if self.server else []


# ---- a server that does not wait ----


class _Stale(_Star):
    """As dp.staleness: the server steps the optimizer for each worker's gradient separately. A worker does the same as
    with a server that waits; in order of arrival it reports, by a message with a tag of its own, which the server
    receives from any rank, that its gradient is there."""

    def __init__(self, ps: "ParameterServer"):
        super().__init__(ps)
        self.inbox = []
        self.done = [0] * ps.workers  # each worker's steps whose gradients are applied
        self.given = [0] * ps.workers  # each worker's steps after which it was last given weights
        self.of = [0] * ps.workers  # the update from which each worker's weights are
        self.sending: List[Any] = []
        self.who = torch.tensor([-1 if self.server else ps.worker])
        if not ps._in_turn:
            tag = [next(_tags)]
            dist.broadcast_object_list(tag, group=ps._group, group_src=0)
            self.tag = tag[0]

    def _next(self, i: int) -> int:
        if self.ps._in_turn:
            return i
        dist.irecv(self.who, group=self.ps._group, tag=self.tag).wait()
        return int(self.who)

    def _give(self) -> None:
        """Gives weights to all workers that are not too far ahead of the slowest."""
        least = min(self.done)
        for w, done in enumerate(self.done):
            if self.given[w] < done and (self.ps._in_turn or done - least <= self.ps._staleness):
                self.sending += self._give_weights([w + 1])
                self.given[w], self.of[w] = done, self.ps.updates

    def _settle(self) -> None:
        """Waits until the weights have left, so that they may change."""
        for work in self.sending:
            work.wait()
        self.sending = []

    def _serve(self) -> None:
        for i in range(self.ps.workers):
            w = self._next(i)
            for work in [self._recv(t, w + 1) for t in self.sums]:
                work.wait()
            self._settle()
            if w == 0:
                self._take_buffers()
            age = self.ps.updates - self.of[w]
            self.ps.age, self.ps.oldest = self.ps.age + age, max(self.ps.oldest, age)
            self.ps._update()
            self.done[w] += 1
            self._give()
        self._settle()

    def _work(self) -> None:
        if not self.ps._in_turn:
            self.works.append(dist.isend(self.who, group=self.ps._group, group_dst=0, tag=self.tag))
        super()._work()

    def meet(self) -> None:
        if self.server:
            for work in self._give_weights(self.others):
                work.wait()
            self.of = [self.ps.updates] * self.ps.workers
        else:
            self.get_weights()
            self.works = []


# ---- every rank a server ----


class _Slices:
    """Each rank adds and steps an equal part of each bucket."""

    def __init__(self, ps: "ParameterServer"):
        self.ps, self.server = ps, True
        self.parts = [b.grads.new_empty(b.grads.numel() // ps.size) for b in ps._buckets]  # sums
        self.works: List[Any] = []

    def begin(self) -> None:
        pass

    def leave(self, k: int) -> None:
        grads = self.ps._buckets[k].grads
        self.works.append(dist.reduce_scatter_tensor(self.parts[k], grads, group=self.ps._group, async_op=True))

    def step(self) -> None:
        group, buffers = self.ps._group, self.ps._moved
        self.works += [dist.all_reduce(f, group=group, async_op=True) for f in self.ps._flags]
        for work in self.works:
            work.wait()
        self.ps._update()
        own = [b.values.view(self.ps.size, -1)[self.ps.rank].clone() for b in self.ps._buckets]
        self.works = [dist.all_gather_into_tensor(b.values, t, group=group, async_op=True)
                      for b, t in zip(self.ps._buckets, own)]
        if buffers:
            self.works.append(dist.broadcast(buffers.pack(), group=group, group_src=0, async_op=True))
        for work in self.works:
            work.wait()
        if buffers:
            buffers.unpack()
        self.works = []

    def meet(self) -> None:
        """All ranks have the same weights already."""

    def clip(self, used: List[nn.Parameter], most: float) -> None:
        """All ranks add the squares of their parts. Gradients that are not used are zero."""
        reals = [torch.view_as_real(t) if t.is_complex() else t for t in self.parts]
        norms = [torch.linalg.vector_norm(t, dtype=torch.float64).to(self.parts[0].device) for t in reals]
        total = torch.stack(norms).square().sum()
        dist.all_reduce(total, group=self.ps._group)
        scale = (most / (total.sqrt() + 1e-6)).clamp(max=1)
        for t in self.parts:
            t.mul_(scale.to(t.device))

    def pieces(self, p: nn.Parameter, b: _Bucket) -> List[_Piece]:
        begin, end = b.span[p]
        part = self.parts[self.ps._buckets.index(b)]
        first = part.numel() * self.ps.rank
        lo, hi = max(begin, first), min(end, first + part.numel())
        if lo >= hi:
            return []
        values = b.values[lo:hi].view(p.shape if hi - lo == p.numel() else -1)
        return [_Piece(nn.Parameter(values), p, lo - begin, hi - begin, part[lo - first:hi - first])]


# ---- the wrapper ----


class ParameterServer(nn.Module):
    """Takes the place of DistributedDataParallel: servers, which hold the optimizer, add the module's gradients.

    optimizer: one of the module's parameters, or a function that makes it from them (functools.partial(SGD, lr=0.1));
    if it has state already, rank 0's counts. server: shared (rank 0 computes and serves), dedicated (rank 0 only
    serves), sharded (each rank serves an equal part). staleness: N > 0 is for a dedicated server, which then steps for
    each worker's gradient separately. With in_turn it takes the gradients of the workers 0, 1, ..., 0, 1, ..., with the
    same bits from run to run; otherwise it takes them in order of arrival, and a worker may be N steps ahead of the
    slowest. find_unused_parameters: some parameters may have no gradient in a step; those that have none on any rank
    stay unchanged. broadcast_buffers: the first worker's buffers come with the weights. clip: the largest norm of the
    whole gradient, in place of torch.nn.utils.clip_grad_norm_; with staleness, of each gradient as it is applied.

    Every rank calls step() once a step, in place of optimizer.step(); it consumes the gradients, which nothing may
    change between backward() and step(). A rank whose 'serves_only' is true has nothing else to do, and may call
    serve(steps) instead. Each of the others is worker number 'worker' of 'workers', which share the data. 'optimizer'
    is on every rank, for schedulers; its state is on the servers.
    """

    def __init__(self, module: nn.Module, optimizer: Union[torch.optim.Optimizer, Callable[..., torch.optim.Optimizer]],
                 server: str = "shared", staleness: int = 0, in_turn: bool = True, bucket_cap_mb: float = 25,
                 find_unused_parameters: bool = False, broadcast_buffers: bool = True,
                 process_group: Optional[dist.ProcessGroup] = None, clip: Optional[float] = None):
        super().__init__()
        self.rank, self.size = dist.get_rank(process_group), dist.get_world_size(process_group)
        self._group, self._dedicated = process_group, server == "dedicated"
        self._staleness, self._in_turn, self._clip = staleness, in_turn, clip
        self.module = module
        self.workers = self.size - self._dedicated
        self.worker: Optional[int] = self.rank - self._dedicated if self.rank >= self._dedicated else None
        self.serves_only = self.worker is None
        self.optimizer = optimizer if isinstance(optimizer, torch.optim.Optimizer) else optimizer(module.parameters())
        self.updates = self.age = self.oldest = 0  # age: the sum over all gradients, in updates
        self._params = [p for p in module.parameters() if p.requires_grad]
        self._check(server)
        self._buckets = _cut(self._params, int(bucket_cap_mb * (1 << 20)), self.size if server == "sharded" else 1)
        self._bucket = {p: b for b in self._buckets for p in b.span}
        self._flags = [torch.zeros(len(self._params))] if find_unused_parameters else []
        moved = broadcast_buffers and any(b.numel() for b in module.buffers())
        self._moved = _Message(module.buffers) if moved else None
        self._sync, self._left = True, 0
        self._taken: Dict[nn.Parameter, Tuple[torch.Tensor, int]] = {}  # gradients in buckets, and their versions
        self._exchange = (_Slices if server == "sharded" else _Stale if staleness else _Star)(self)
        self._begin_alike()
        self._take_optimizer(sharded=server == "sharded")
        if self.worker is not None:
            for p in self._params:
                p.register_post_accumulate_grad_hook(self._ready)

    # -- the beginning --

    def _check(self, server: str) -> None:
        if server not in KINDS:
            raise ValueError(f"server '{server}': one of {', '.join(KINDS)}")
        if self._dedicated and self.size < 2:
            raise ValueError("a dedicated server needs a worker: start 2 ranks or more, or use server='shared'")
        if self._staleness < 0 or self._staleness != int(self._staleness):
            raise ValueError(f"staleness {self._staleness}: a whole number, 0 or more")
        if self._staleness and not self._dedicated:
            raise ValueError(f"a server that does not wait must be a dedicated one, and server is '{server}': use "
                             "server='dedicated', or staleness=0")
        if self._clip is not None and not self._clip > 0:
            raise ValueError(f"clip {self._clip}: the largest norm of the gradient, above 0, or None")
        if not self._params:
            raise ValueError("the module has no parameter that requires a gradient: there is nothing to serve")
        kind = type(self.optimizer).__name__
        if kind == "LBFGS":
            raise ValueError("LBFGS asks for the loss again within a step, which a server cannot compute: "
                             "use another optimizer")
        if server == "sharded" and kind in _OF_WHOLE_TENSORS:
            raise ValueError(f"{kind} cannot step a part of a tensor: use server='shared'")
        names = {p: name for name, p in self.module.named_parameters()}
        for p in itertools.chain.from_iterable(g["params"] for g in self.optimizer.param_groups):
            if p not in names:
                raise ValueError(f"the optimizer has a parameter of shape {tuple(p.shape)} that is not the module's")

    def _begin_alike(self) -> None:
        """Gives rank 0's values to every rank, after a check that all have the same. Buffers that do not come with the
        weights may differ, as in DistributedDataParallel."""
        named = itertools.chain(self.module.named_parameters(), self.module.named_buffers() if self._moved else ())
        mine = [(name, tuple(t.shape), str(t.dtype), t.requires_grad) for name, t in named]
        every: List[Any] = [None] * self.size
        dist.all_gather_object(every, mine, group=self._group)
        for r, theirs in enumerate(every):
            if theirs != every[0]:
                a, b = next((a, b) for a, b in itertools.zip_longest(every[0], theirs) if a != b)
                raise ValueError(f"rank {r} has another module than rank 0: {b} where rank 0 has {a}")
        for b in self._buckets:
            dist.broadcast(b.values, group=self._group, group_src=0)
        frozen = (p for p in self.module.parameters() if not p.requires_grad)
        for t in itertools.chain(frozen, self.module.buffers() if self._moved else ()):
            if t.numel():
                message = _Message(lambda t=t: [t])
                dist.broadcast(message.pack(), group=self._group, group_src=0)
                message.unpack()

    def _take_optimizer(self, sharded: bool) -> None:
        self._groups = [list(g["params"]) for g in self.optimizer.param_groups]
        self._pieces = [[piece for p in g if p in self._bucket for piece in self._exchange.pieces(p, self._bucket[p])]
                        for g in self._groups]
        if sharded:  # each rank has its parts of rank 0's state, as Adagrad has some from the beginning
            whole = [self.optimizer.state_dict() if self.optimizer.state else None]
            dist.broadcast_object_list(whole, group=self._group, group_src=0)
            self.optimizer.state.clear()
            for g, pieces in zip(self.optimizer.param_groups, self._pieces):
                g["params"] = [piece.step for piece in pieces]
            if whole[0]:
                self.load_optimizer_state_dict(whole[0])

    # -- a step --

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if self.serves_only:
            raise RuntimeError("this rank serves and does not compute: call step() once a step, or serve(steps)")
        return self.module(*inputs, **named)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of a backward inside stay on this rank and are added to the next one's."""
        before, self._sync = self._sync, False
        try:
            yield
        finally:
            self._sync = before

    def _name(self, p: nn.Parameter) -> str:
        return next(name for name, q in self.module.named_parameters() if q is p)

    def _ready(self, p: nn.Parameter) -> None:
        """The gradient of p is there: its share of the mean goes into the bucket, and buckets leave in their order."""
        if not self._sync:
            return
        b = self._bucket[p]
        if p not in b.missing:
            raise RuntimeError(f"{self._name(p)} has a second gradient since step(): "
                               "put every backward() but the last in no_sync()")
        self._take(p)
        self._exchange.begin()
        self._leave()

    def _take(self, p: nn.Parameter) -> None:
        if p.grad is None or p.grad.layout != torch.strided:
            raise TypeError(f"the gradient of {self._name(p)} is sparse: a parameter server takes dense gradients")
        b = self._bucket[p]
        begin, end = b.span[p]
        torch.mul(p.grad, 1 / self.workers, out=b.grads[begin:end].view(p.shape))
        if not self._taken:
            self._sample = p.grad.flatten()[:16].clone()
        self._taken[p] = p.grad, p.grad._version
        b.missing.discard(p)

    def _leave(self) -> None:
        while self._left < len(self._buckets) and not self._buckets[self._left].missing:
            self._exchange.leave(self._left)
            self._left += 1

    def _check_taken(self) -> None:
        changed = [p for p, (grad, version) in self._taken.items() if p.grad is not grad or grad._version != version]
        for p, (grad, _) in itertools.islice(self._taken.items(), 1):  # GradScaler changes no version
            if not torch.allclose(grad.flatten()[:16], self._sample, rtol=0, atol=0, equal_nan=True):
                changed.append(p)
        if changed:
            raise RuntimeError(f"the gradient of {self._name(changed[0])} was changed between backward(), which gave "
                               "it to the server, and step(): use clip=NORM in place of clip_grad_norm_, and "
                               "Tensor.register_hook for other changes")

    def _complete(self) -> None:
        """Takes gradients that only a backward in no_sync() gave, and fills in zeros for parameters that have none."""
        self._check_taken()
        for p in self._params:
            if p in self._bucket[p].missing and p.grad is not None:
                self._take(p)
        absent = [p for p in self._params if p in self._bucket[p].missing]
        if absent and not self._flags:
            if len(absent) == len(self._params):
                raise RuntimeError("step() before backward(): no parameter has a gradient")
            names = ", ".join(self._name(p) for p in absent[:3])
            raise RuntimeError(f"{len(absent)} of {len(self._params)} parameters have no gradient in this step "
                               f"({names}): find_unused_parameters=True allows that")
        for flags in self._flags:
            flags.copy_(torch.tensor([float(p not in self._bucket[p].missing) for p in self._params]))
        for p in absent:
            b = self._bucket[p]
            b.grads[slice(*b.span[p])] = 0
            b.missing.discard(p)
        self._leave()

    def _update(self) -> None:
        used = self._params
        if self._flags:
            used = [p for p, flag in zip(used, self._flags[0].tolist()) if flag]
        if self._clip is not None:
            self._exchange.clip(used, self._clip)
        some = set(used)
        for piece in itertools.chain.from_iterable(self._pieces):
            piece.step.grad = piece.total.view(piece.step.shape) if piece.of in some else None
        self.optimizer.step()
        self.updates += 1
        for piece in itertools.chain.from_iterable(self._pieces):
            piece.step.grad = None

    def step(self) -> None:
        """Takes the place of optimizer.step(). Every rank calls it, and no gradient is left."""
        if self.worker is not None:
            self._complete()
        self._taken.clear()
        for p in self._params:
            p.grad = None
        self._exchange.step()
        self._left = 0
        for b in self._buckets:
            b.missing = set(b.span)

    def serve(self, steps: int, each: Optional[Callable[[], Any]] = None) -> None:
        """Does this many steps on a rank that only serves. each: what the workers call after each step too, such as
        scheduler.step."""
        for _ in range(steps):
            self.step()
            if each:
                each()

    def meet(self) -> None:
        """Gives all ranks the same weights, with all gradients so far. Every rank calls it after the same number of
        steps. Only staleness needs it: before an evaluation, before a checkpoint, and at the end."""
        self._exchange.meet()

    # -- the optimizer's state --

    def optimizer_state_dict(self) -> Optional[Dict[str, Any]]:
        """Gives rank 0 the state that one optimizer of the whole module would have; None on the others. Every rank
        calls it."""
        index = {p: i for i, p in enumerate(itertools.chain.from_iterable(self._groups))}
        mine = [(index[x.of], x.begin, x.end, self.optimizer.state[x.step])
                for x in itertools.chain.from_iterable(self._pieces) if x.step in self.optimizer.state]
        every: Optional[List[Any]] = [None] * self.size if self.rank == 0 else None
        dist.gather_object(mine, every, group=self._group, group_dst=0)
        if every is None:
            return None
        params, state = list(index), {}
        for i, begin, end, values in itertools.chain.from_iterable(every):
            whole = state.setdefault(i, {})
            for key, value in values.items():
                if isinstance(value, torch.Tensor) and value.dim() and value.numel() == end - begin:
                    whole.setdefault(key, value.new_empty(params[i].shape)).view(-1)[begin:end] = value.reshape(-1)
                else:
                    whole[key] = copy.deepcopy(value)
        groups = self.optimizer.state_dict()["param_groups"]
        for g, group in zip(groups, self._groups):
            g["params"] = [index[p] for p in group]
        return {"state": dict(sorted(state.items())), "param_groups": groups}

    @staticmethod
    def _part(x: _Piece, value: Any) -> Any:
        """A piece's part of one value of a parameter's state; the whole value if it has not the parameter's shape."""
        if isinstance(value, torch.Tensor) and value.dim() and value.shape == x.of.shape:
            return value.reshape(-1)[x.begin:x.end].view(x.step.shape).clone()
        return copy.deepcopy(value)

    def load_optimizer_state_dict(self, whole: Dict[str, Any]) -> None:
        """Loads what optimizer_state_dict() gave with any kind of server, or a plain optimizer's state. Every rank
        gives the same."""
        theirs, ours = [len(g["params"]) for g in whole["param_groups"]], [len(g) for g in self._groups]
        if theirs != ours:
            raise ValueError(f"the state has groups of {theirs} parameters, and the optimizer has groups of {ours}")
        index = {p: i for g, numbers in zip(self._groups, whole["param_groups"]) for p, i in zip(g, numbers["params"])}
        stepped = itertools.chain.from_iterable(g["params"] for g in self.optimizer.param_groups)
        here = {p: i for i, p in enumerate(stepped)}
        state: Dict[int, Any] = {}
        for x in itertools.chain.from_iterable(self._pieces):
            values = whole["state"].get(index[x.of])
            if values is not None:
                state[here[x.step]] = {key: self._part(x, value) for key, value in values.items()}
        groups, at = [], 0
        for g, mine in zip(whole["param_groups"], self.optimizer.param_groups):
            groups.append({**g, "params": list(range(at, at + len(mine["params"])))})
            at += len(mine["params"])
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
