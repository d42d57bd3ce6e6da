"""A rank of test_torch.py: every collective of torch.distributed by gloo and by engine, with equal results and, where gloo
refuses, an error of engine's as well."""

import datetime
import itertools
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

import engine_dp.torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]
SHAPES = [(), (0,), (1,), (7,), (5, 3), (300, 70)]
OPS = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
told = []


def value(rank, type, shape, salt=0):
    g = torch.Generator().manual_seed(100 * rank + salt)
    return torch.randint(0, 4, shape, generator=g).to(type)


def outcome(call, group):
    """What the call gives: copies of tensors, or that it failed."""
    try:
        return [t.clone() for t in call(group)]
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as e:
        return f"{type(e).__name__}: {e}"


def both(name, call, groups):
    gloo, engine = (outcome(call, g) for g in groups)
    if isinstance(gloo, str):  # engine may do more
        if not isinstance(engine, str):
            told.append(f"{name}: gloo refuses it ({gloo[:60]})")
        return
    assert not isinstance(engine, str), f"{name}: {engine}"
    assert len(gloo) == len(engine), name
    for a, b in zip(gloo, engine):
        assert a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b), f"{name}: {a} {b}"


def collectives(groups, rank, size, sync):
    def done(work):
        if not sync:
            work.wait()

    a = not sync
    for type, shape in itertools.product(TYPES, SHAPES):
        what = f"{type} {shape} {'now' if sync else 'later'}"

        def broadcast(g):
            x = value(rank, type, shape)
            done(dist.broadcast(x, size - 1, group=g, async_op=a))
            return [x]

        def all_gather(g):
            out = [torch.empty(shape, dtype=type) for _ in range(size)]
            done(dist.all_gather(out, value(rank, type, shape), group=g, async_op=a))
            return out

        def all_gather_into_tensor(g):
            out = torch.empty((size, *shape), dtype=type)
            done(dist.all_gather_into_tensor(out, value(rank, type, shape), group=g, async_op=a))
            return [out]

        def gather(g):
            out = [torch.empty(shape, dtype=type) for _ in range(size)] if rank == 1 else None
            done(dist.gather(value(rank, type, shape), out, 1, group=g, async_op=a))
            return out or []

        def scatter(g):
            out = torch.empty(shape, dtype=type)
            done(dist.scatter(out, [value(r, type, shape) for r in range(size)] if rank == 1 else None, 1, group=g, async_op=a))
            return [out]

        def all_to_all(g):
            out = [torch.empty(shape, dtype=type) for _ in range(size)]
            done(dist.all_to_all(out, [value(rank, type, shape, r) for r in range(size)], group=g, async_op=a))
            return out

        def all_to_all_single(g):
            rows = [rank + r for r in range(size)]
            x, out = value(rank, type, (sum(rows), *shape)), torch.empty((sum(rows), *shape), dtype=type)
            done(dist.all_to_all_single(out, x, rows, rows, group=g, async_op=a))
            return [out]

        def strided(g):
            x = value(rank, type, (6, 4)).t()
            done(dist.broadcast(x, 0, group=g, async_op=a))
            return [x]

        for call in (broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_to_all, all_to_all_single, strided):
            both(f"{call.__name__} {what}", call, groups)


def sums(groups, rank, size):
    for type, shape, name in itertools.product(TYPES, SHAPES, OPS):
        op = getattr(dist.ReduceOp, name)

        def all_reduce(g):
            x = value(rank, type, shape)
            dist.all_reduce(x, op, group=g)
            return [x]

        def later(g):
            xs = [value(rank, type, shape, k) for k in range(3)]
            works = [dist.all_reduce(x, op, group=g, async_op=True) for x in xs]
            futures = [w.get_future() for w in works]
            for f in futures[::-1]:
                f.wait()
            return xs

        def reduce(g):
            x = value(rank, type, shape)
            dist.reduce(x, 1, op, group=g)
            return [x] if rank == 1 else []

        def reduce_scatter(g):
            out = torch.empty(shape, dtype=type)
            dist.reduce_scatter(out, [value(rank, type, shape, r) for r in range(size)], op, group=g)
            return [out]

        def reduce_scatter_tensor(g):
            out = torch.empty(shape or (1,), dtype=type)
            dist.reduce_scatter_tensor(out, value(rank, type, (size * out.shape[0], *out.shape[1:])), op, group=g)
            return [out]

        for call in (all_reduce, later, reduce, reduce_scatter, reduce_scatter_tensor):
            both(f"{call.__name__} {name} {type} {shape}", call, groups)


def sparse(groups, rank, size):
    def all_reduce(g):
        i = torch.tensor([[rank, 5, 3][:rank + 1]])
        torch.sparse.check_sparse_tensor_invariants.enable()
        x = torch.sparse_coo_tensor(i, torch.ones(i.shape[1], 2) * (rank + 1), (6, 2))
        dist.all_reduce(x, group=g)
        return [x.to_dense()]

    both("sparse all_reduce", all_reduce, groups)


def messages(groups, rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size

    def around(g):
        """Everybody sends first, then receives; small and large."""
        outs = []
        for n in (1, 100000):
            x, out = value(rank, torch.float32, (n,)), torch.empty(n)
            works = [dist.isend(x, after, group=g), dist.irecv(out, before, group=g)]
            for w in works:
                w.wait()
            outs.append(out)
        return outs

    def at_once(g):
        out = torch.empty(70000)
        ops = [dist.P2POp(dist.irecv, out, before, g, tag=3), dist.P2POp(dist.isend, value(rank, torch.float32, (70000,)), after, g, tag=3)]
        for w in dist.batch_isend_irecv(ops):
            w.wait()
        return [out]

    def pair(g):
        x = value(rank, torch.int64, (9,))
        if rank == 0:
            dist.send(x, 1, group=g)
        elif rank == 1:
            dist.recv(x, 0, group=g)
        return [x]

    for call in (around, at_once, pair):
        both(call.__name__, call, groups)


def objects(groups, rank, size):
    def all_gather_object(g):
        out = [None] * size
        dist.all_gather_object(out, {"rank": rank, "pad": "x" * 100 * rank}, group=g)
        assert [o["rank"] for o in out] == list(range(size))
        return []

    def broadcast_object_list(g):
        x = [("a", 1)] if rank == 0 else [None]
        dist.broadcast_object_list(x, 0, group=g)
        assert x == [("a", 1)]
        return []

    def barriers(g):
        dist.barrier(group=g)
        dist.barrier(group=g, async_op=True).wait(datetime.timedelta(seconds=30))
        return []

    for call in (all_gather_object, broadcast_object_list, barriers):
        both(call.__name__, call, groups)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 5))


def trained(group, rank, **ways):
    net = nn.parallel.DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.005, **ways)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    g = torch.Generator().manual_seed(rank)
    for step in range(6):
        with net.no_sync() if step % 3 == 0 and not ways.get("static_graph") else torch.enable_grad():
            nn.functional.mse_loss(net(torch.randn(8, 20, generator=g)), torch.randn(8, 5, generator=g)).backward()
        if step % 3:
            optimizer.step()
            optimizer.zero_grad()
    return [p.detach() for p in net.parameters()] + list(net.module.buffers())


def data_parallel(groups, rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def hooked(g):
        net = nn.parallel.DistributedDataParallel(network(), process_group=g)
        net.register_comm_hook(g, default_hooks.bf16_compress_hook)
        net(torch.ones(4, 20) * rank).sum().backward()
        return [p.grad for p in net.parameters()]

    def uneven(g):
        net = nn.parallel.DistributedDataParallel(network(), process_group=g)
        with net.join():
            for _ in range(1 + rank):
                net(torch.ones(4, 20)).sum().backward()
        return []

    for name, call in (("plain", lambda g: trained(g, rank)), ("static graph", lambda g: trained(g, rank, static_graph=True)),
                       ("unused parameters", lambda g: trained(g, rank, find_unused_parameters=True)),
                       ("views", lambda g: trained(g, rank, gradient_as_bucket_view=True)), ("hook", hooked), ("join", uneven)):
        gloo, engine = (outcome(call, g) for g in groups)
        assert not isinstance(gloo, str), f"{name}: {gloo}"
        assert not isinstance(engine, str), f"{name}: {engine}"
        for a, b in zip(gloo, engine):  # the order of addition differs where ranks are more than two
            torch.testing.assert_close(a, b, rtol=0 if size == 2 else 1e-4, atol=0 if size == 2 else 1e-6)


def parts(groups, rank, size):
    """Groups of some of the ranks, and a job that has engine alone."""
    mine = dist.new_group([0, size - 1], backend="engine")
    if rank in (0, size - 1):
        x = torch.tensor([rank])
        dist.all_reduce(x, group=mine)
        assert x.item() == size - 1
    with engine_dp.torch.options(bandwidth=1e9, latency=1e-3):
        slow = dist.new_group(backend="engine")
    began = datetime.datetime.now()
    dist.barrier(group=slow)
    assert (datetime.datetime.now() - began).total_seconds() >= 1e-3


def wrong(groups, rank, size):
    g = dist.new_group(backend="engine")
    try:
        dist.all_reduce(torch.zeros(3 + rank), group=g)
    except dist.DistBackendError as e:
        assert "all_reduce(f32, 3, sum)" in str(e) and "all_reduce(f32, 4, sum)" in str(e), e
    else:
        raise AssertionError("ranks that disagree were not told")


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = (dist.group.WORLD, dist.new_group(backend="engine"))
    for part in sys.argv[1:]:
        if part == "collectives":
            for sync in (True, False):
                collectives(groups, rank, size, sync)
        else:
            globals()[part](groups, rank, size)
    if rank == 0:
        print("\n".join(sorted({t.split(":")[0].split(" ")[0] + " " + t.split(" ", 1)[1][:70] for t in told})[:20]))
    dist.destroy_process_group()


main()
