"""All-reduces with fewer bytes, as communication hooks of DistributedDataParallel: the kinds of the engine's own
comm.compress, with the same numbers, on torch.distributed.

    ddp.register_comm_hook(None, compress_hook("int8"))

A bucket takes one or two exchanges. As in the engine, the first begins while backward still runs. The rest follows in
the order of the buckets after the last one is there, so every rank makes the same calls in the same order.
"""

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
from torch import nn

BLOCK = 256  # values that share a scale
_CLASSES = 0x7fff


class _Half:
    """16 bits, added in 16 bits: half the bytes of an all-reduce."""

    feedback = False

    def __init__(self, type: torch.dtype, group: Any):
        self.type, self.group = type, group

    def send(self, x: torch.Tensor, rest: None) -> Any:
        wire = x.to(self.type)
        return wire, dist.all_reduce(wire, group=self.group, async_op=True)

    turn = None

    def receive(self, wire: torch.Tensor, x: torch.Tensor) -> None:
        x.copy_(wire)


def _encode(x: torch.Tensor, wire: torch.Tensor) -> None:
    """Rows of 256 values become rows of a scale and 8 bits a value; x becomes what is lost. A row with a value that is
    not finite is decoded as NaN throughout, and stays as it is in x."""
    most = x.abs().amax(1, keepdim=True)
    finite = most.isfinite()
    scale = most / 127
    inverse = scale.reciprocal()
    flat = finite & inverse.isinf()  # zero, or too small to have an inverse: it waits for a later step
    scale = torch.where(flat, 0, scale)
    whole = torch.where(finite & ~flat, (x * inverse).round(), 0)
    wire[:, :4] = torch.where(finite, scale, math.nan).view(torch.uint8)
    wire[:, 4:] = whole.to(torch.int8).view(torch.uint8)
    x -= torch.where(finite & ~flat, whole * scale, 0)


def _decode(wire: torch.Tensor) -> torch.Tensor:
    return wire[:, :4].contiguous().view(torch.float32) * wire[:, 4:].contiguous().view(torch.int8)


class _Int8:
    """Every rank's blocks of a part go to the part's owner, which adds them in the order of the ranks and rounds the
    sum again; then all gather the parts. The errors of both roundings go into the next step. Each rank sends
    2(N-1)/N of 260 bytes for 256 floats."""

    feedback = True

    def __init__(self, group: Any):
        self.group, self.size, self.rank = group, dist.get_world_size(group), dist.get_rank(group)

    def _rows(self, x: torch.Tensor) -> torch.Tensor:
        """Padded with zeros, so that each rank's part has the same number of blocks."""
        part = -(-x.numel() // (BLOCK * self.size))
        return nn.functional.pad(x, (0, part * self.size * BLOCK - x.numel())).view(-1, BLOCK)

    def send(self, x: torch.Tensor, rest: torch.Tensor) -> Any:
        rest += x
        rows = self._rows(rest)
        wire = torch.empty((rows.shape[0], 4 + BLOCK), dtype=torch.uint8)
        _encode(rows, wire)
        rest.copy_(rows.view(-1)[:rest.numel()])
        inbox = torch.empty_like(wire)
        return inbox, dist.all_to_all_single(inbox, wire, group=self.group, async_op=True)

    def turn(self, inbox: torch.Tensor, rest: torch.Tensor) -> Any:
        terms = inbox.view(self.size, -1, 4 + BLOCK)
        total = _decode(terms[0])
        for term in terms[1:]:
            total += _decode(term)
        mine, back = torch.empty_like(terms[0]), torch.empty_like(inbox)
        _encode(total, mine)
        begin = self.rank * total.numel()
        own = rest[begin:begin + total.numel()]
        own += total.view(-1)[:own.numel()]
        return back, dist.all_gather_into_tensor(back, mine, group=self.group, async_op=True)

    def receive(self, back: torch.Tensor, x: torch.Tensor) -> None:
        x.copy_(_decode(back).view(-1)[:x.numel()])


class _TopK:
    """Each rank sends its k largest values (the share 'ratio'), with their places, to all: (N-1) 8 k bytes. Magnitudes
    are compared by their upper 15 bits; of the last ones that are equal, those that stand first are taken."""

    feedback = True

    def __init__(self, ratio: float, group: Any):
        self.ratio, self.group, self.size = ratio, group, dist.get_world_size(group)

    def send(self, x: torch.Tensor, rest: torch.Tensor) -> Any:
        rest += x
        n = rest.numel()
        k = min(n, math.ceil(self.ratio * n))
        classes = rest.view(torch.int32) >> 16 & _CLASSES
        least = classes.kthvalue(n - k + 1).values
        above = classes > least
        last = (classes == least).nonzero()[:k - int(above.sum())]
        above[last] = True
        places = above.nonzero().view(-1)
        wire = torch.cat([places.to(torch.int32), rest[places].view(torch.int32)])
        rest[places] = 0
        every = wire.new_empty(self.size * 2 * k)
        return every, dist.all_gather_into_tensor(every, wire, group=self.group, async_op=True)

    turn = None

    def receive(self, every: torch.Tensor, x: torch.Tensor) -> None:
        x.zero_()
        for places, values in every.view(self.size, 2, -1):
            x[places.long()] += values.view(torch.float32)


class _Hook:
    """What DistributedDataParallel calls for each bucket."""

    def __init__(self, kind: str, ratio: float):
        self.kind, self.ratio, self.way = kind, ratio, None
        self.rest: Dict[int, Tuple[List[nn.Parameter], torch.Tensor]] = {}  # of each bucket, in its order
        self.parts: Dict[nn.Parameter, torch.Tensor] = {}  # views of the rests
        self.pending: List[Any] = []

    def _open(self, group: Any) -> Any:
        if self.kind == "int8":
            return _Int8(group)
        if self.kind == "topk":
            return _TopK(self.ratio, group)
        return _Half(torch.bfloat16 if self.kind == "bf16" else torch.float16, group)

    def _rest_of(self, bucket: Any) -> Optional[torch.Tensor]:
        """DistributedDataParallel cuts its buckets anew after the first step: each parameter keeps its rest."""
        if not self.way.feedback:
            return None
        params = bucket.parameters()
        before, rest = self.rest.get(bucket.index(), ([], None))
        if [id(p) for p in before] != [id(p) for p in params]:
            rest = torch.cat([self.parts.get(p, torch.zeros(p.numel())) for p in params])
            self.rest[bucket.index()] = params, rest
            self.parts.update(zip(params, rest.split([p.numel() for p in params])))
        return rest

    def __call__(self, group: Any, bucket: Any) -> torch.futures.Future:
        x = bucket.buffer()
        if x.dtype != torch.float32:
            raise TypeError(f"compress_hook is for gradients of float32, not of {x.dtype}")
        self.way = self.way or self._open(group)
        x *= 1 / dist.get_world_size(group)
        rest = self._rest_of(bucket)
        done: torch.futures.Future = torch.futures.Future()
        self.pending.append([x, rest, done, *self.way.send(x, rest)])
        if bucket.is_last():
            self._land()
        return done

    def _land(self) -> None:
        pending, self.pending = self.pending, []
        if self.way.turn:
            for packet in pending:
                packet[4].wait()
                packet[3:] = self.way.turn(packet[3], packet[1])
        for x, _, done, wire, work in pending:
            work.wait()
            self.way.receive(wire, x)
            done.set_result(x)


def compress_hook(kind: str, ratio: float = 0.01
                  ) -> Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A hook for ddp.register_comm_hook(group or None, hook): kind is bf16, fp16, int8 or topk (which sends the share
    'ratio' of the values). Each module needs its own hook."""
    if kind not in ("bf16", "fp16", "int8", "topk"):
        raise ValueError(f"no compression '{kind}': bf16, fp16, int8, topk")
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio {ratio}: above 0 and at most 1")
    state = _Hook(kind, ratio)

    def hook(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return state(group, bucket)

    return hook
