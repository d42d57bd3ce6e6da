"""A rank of test_compress.py: compress_hook is compared with the same sums in numpy.

    torchrun ... ranks_compress.py BACKEND"""

import math
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from engine_dp.compress import _Hook
from engine_dp.torch import compress_hook

N = 1000  # not a multiple of a block
KINDS = ("bf16", "fp16", "int8", "topk")


class Bucket:
    """What DistributedDataParallel gives to a hook."""

    def __init__(self, params, x, index=0, last=True):
        self.of = params, x, index, last

    def parameters(self):
        return self.of[0]

    def buffer(self):
        return self.of[1]

    def index(self):
        return self.of[2]

    def is_last(self):
        return self.of[3]


def gradient(rank, step):
    g = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(N, generator=g) * 10.0 ** torch.randint(-3, 2, (N,), generator=g)
    x[300:700] = 0  # a block of zeros among them
    if step == 2:
        x[5] = math.inf if rank == 1 else x[5]
    return x


def in_blocks(x):
    """Each value as its 8 bits and its block's scale give it, and what is lost."""
    sent = np.zeros_like(x)
    for at in range(0, len(x), 256):
        block = x[at:at + 256]
        most = np.abs(block).max()
        if not np.isfinite(most):
            sent[at:at + 256] = np.nan
            continue
        scale = np.float32(most / np.float32(127))
        if scale > 0:
            sent[at:at + 256] = np.rint(block * (np.float32(1) / scale)) * scale
    lost = np.where(np.isnan(sent), x, x - sent)
    return sent, lost


def plain(kind, rests, xs, owner_of):
    """The sum that all ranks get; rests become what they keep."""
    if kind == "int8":
        for rest, x in zip(rests, xs):
            rest += x
        sent = []
        for r, rest in enumerate(rests):
            one, rests[r] = in_blocks(rest)
            sent.append(one)
        total = sent[0].copy()
        for one in sent[1:]:
            total += one
        out, lost = in_blocks(total)
        for i, value in enumerate(lost):
            rests[owner_of(i)][i] += value
        return out
    total = np.zeros(N, np.float32)
    for rest, x in zip(rests, xs):
        rest += x
        rough = (np.abs(rest).view(np.uint32) >> 16).astype(int)
        chosen = sorted(range(N), key=lambda i: (-rough[i], i))[:math.ceil(0.05 * N)]
        for i in chosen:
            total[i] += rest[i]
            rest[i] = 0
    return total


def with_feedback(kind, rank, size):
    hook = _Hook(kind, 0.05)
    params = [nn.Parameter(torch.zeros(n)) for n in (400, 600)]
    rests = [np.zeros(N, np.float32) for _ in range(size)]
    part = -(-N // (256 * size)) * 256
    for step in range(1, 6):
        if step == 2 and kind == "int8":
            continue
        xs = [(gradient(r, step) * (1 / size)).numpy() for r in range(size)]
        if step >= 4:
            xs = [np.concatenate([x[400:], x[:400]]) for x in xs]
        if step == 4:  # buckets are cut anew, in another order
            rests = [np.concatenate([x[400:], x[:400]]) for x in rests]
            params = params[::-1]
        x = gradient(rank, step)
        x = torch.cat([x[400:], x[:400]]) if step >= 4 else x
        with np.errstate(all="ignore"):
            wanted = plain(kind, rests, xs, lambda i: i // part)
        got = hook(None, Bucket(params, x)).wait()
        got, rest = got.numpy(), hook.rest[0][1].numpy()
        assert np.array_equal(got, wanted, equal_nan=True), f"{kind}, step {step}: {np.abs(got - wanted).max()}"
        assert np.array_equal(rest, rests[rank], equal_nan=True), f"{kind}, step {step}, rest"


def not_finite(rank, size):
    got = compress_hook("int8")(None, Bucket([nn.Parameter(torch.zeros(N))], gradient(rank, 2))).wait()
    assert got[:256].isnan().all() and got[256:].isfinite().all()


def in_16_bits(rank, size):
    for kind, type in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        terms = [(gradient(r, 1) * (1 / size)).to(type) for r in range(size)]
        wanted = terms[0] + terms[1]
        for t in terms[2:]:
            wanted = wanted + t
        got = compress_hook(kind)(None, Bucket([nn.Parameter(torch.zeros(N))], gradient(rank, 1))).wait()
        assert torch.equal(got, wanted.float()), kind


def bytes_are_the_formula(rank, size):
    """The bytes of one all-reduce of N values, sent and received; its parts are whole cache lines."""
    part = -(-N // (256 * size))
    for kind, wanted in (("bf16", 2 * (size - 1) * 2 * N / size), ("fp16", 2 * (size - 1) * 2 * N / size),
                         ("int8", 2 * (size - 1) * part * 260), ("topk", (size - 1) * 8 * math.ceil(0.05 * N))):
        before = dist.group.WORLD.engine.statistics()
        compress_hook(kind, 0.05)(None, Bucket([nn.Parameter(torch.zeros(N))], gradient(rank, 1))).wait()
        now = dist.group.WORLD.engine.statistics()
        for moved in (now.sent - before.sent, now.received - before.received):
            assert abs(moved - wanted) <= 128, f"{kind}: {moved}, not {wanted}"


def trained(rank, size):
    """DistributedDataParallel with several buckets learns with each kind, and all ranks keep the same weights."""
    for kind in (None, *KINDS):
        torch.manual_seed(5)
        net = nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 3))
        net = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.002)
        if kind:
            net.register_comm_hook(None, compress_hook(kind, 0.1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
        rule = torch.randn(20, 3)
        g = torch.Generator().manual_seed(rank)
        losses = []
        for _ in range(60):
            x = torch.randn(32, 20, generator=g)
            loss = nn.functional.cross_entropy(net(x), (x @ rule).argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert sum(losses[-10:]) < 0.6 * sum(losses[:10]), f"{kind}: {losses[0]} to {losses[-1]}"
        for p in net.parameters():
            first = p.detach().clone()
            dist.broadcast(first, 0)
            assert torch.equal(first, p), kind


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[1])
    rank, size = dist.get_rank(), dist.get_world_size()
    with_feedback("int8", rank, size)
    with_feedback("topk", rank, size)
    not_finite(rank, size)
    in_16_bits(rank, size)
    if sys.argv[1] == "engine":
        bytes_are_the_formula(rank, size)
    trained(rank, size)
    for words, call in (("no compression 'int4'", lambda: compress_hook("int4")),
                        ("ratio 0: above 0", lambda: compress_hook("topk", 0))):
        try:
            call()
        except ValueError as e:
            assert words in str(e), e
        else:
            raise AssertionError(words)
    dist.destroy_process_group()


main()
