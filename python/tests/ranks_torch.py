"""A rank of test_torch.py: every collective of torch.distributed gives the same with gloo and with engine. Its
arguments are the backend of the world, and the parts to run."""

import datetime
import gc
import itertools
import os
import random
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn

import engine_dp.torch

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]
SHAPES = [(), (0,), (1,), (7,), (5, 3), (300, 70)]
OPS = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]
refused = []


def value(rank, type, shape, salt=0):
    g = torch.Generator().manual_seed(100 * rank + salt)
    return torch.randint(0, 4, shape, generator=g).to(type)


def outcome(call, group):
    """The call's result: copies of its tensors, or the text of its error."""
    try:
        return [t.clone() for t in call(group)]
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as e:
        return f"{type(e).__name__}: {e}"


def both(name, call, groups):
    gloo, engine = (outcome(call, g) for g in groups)
    if isinstance(gloo, str):  # engine may do more
        if not isinstance(engine, str):
            refused.append(f"{name}: gloo refuses it ({gloo[:60]})")
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
            xs = [value(r, type, shape) for r in range(size)] if rank == 1 else None
            done(dist.scatter(out, xs, 1, group=g, async_op=a))
            return [out]

        def rows(*order):  # tensors that lie in one memory, and a look at all of it
            whole = torch.zeros((size + 1, *shape), dtype=type)
            return whole, [whole[r] for r in order]

        def all_gather_rows(g):
            whole, out = rows(*range(size))
            done(dist.all_gather(out, value(rank, type, shape), group=g, async_op=a))
            return [whole]

        def gather_rows(g):
            whole, out = rows(*range(1, size + 1))
            done(dist.gather(value(rank, type, shape), out if rank == 1 else None, 1, group=g, async_op=a))
            return [whole]

        def gather_rows_backwards(g):
            whole, out = rows(*range(size)[::-1])
            done(dist.gather(value(rank, type, shape), out if rank == 1 else None, 1, group=g, async_op=a))
            return [whole]

        def scatter_rows(g):
            (whole, xs), out = rows(*range(1, size + 1)), torch.empty(shape, dtype=type)
            whole.copy_(value(rank, type, whole.shape))
            done(dist.scatter(out, xs if rank == 1 else None, 1, group=g, async_op=a))
            return [out, whole]

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

        for call in (broadcast, all_gather, all_gather_into_tensor, gather, scatter, all_gather_rows, gather_rows,
                     gather_rows_backwards, scatter_rows, all_to_all, all_to_all_single, strided):
            both(f"{call.__name__} {what}", call, groups)


def sums(groups, rank, size):
    for type, shape, name in itertools.product(TYPES + [torch.bool, torch.complex64], SHAPES, OPS):
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
        """Every rank sends first, then receives: a small message, and a large one."""
        outs = []
        for n in (1, 100000):
            x, out = value(rank, torch.float32, (n,)), torch.empty(n)
            works = [dist.isend(x, after, group=g), dist.irecv(out, before, group=g)]
            for w in works:
                w.wait()
            outs.append(out)
        return outs

    def at_once(g):
        x, out = value(rank, torch.float32, (70000,)), torch.empty(70000)
        ops = [dist.P2POp(dist.irecv, out, before, g, tag=3), dist.P2POp(dist.isend, x, after, g, tag=3)]
        for w in dist.batch_isend_irecv(ops):
            w.wait()
        return [out]

    def permuted(g):
        """Every rank sends every other rank many messages of all types, and receives them in another order."""
        def message(a, b, tag):
            shape = [(0,), (1,), (37,), (20000,), (3, 50)][(a + 2 * b + tag) % 5]
            return value(a, TYPES[(a + b + tag) % len(TYPES)], shape, 1000 * b + tag)

        others = [r for r in range(size) if r != rank]
        tags = [(r, t) for r in others for t in range(40)]
        works = []
        for r, t in random.Random(10 + rank).sample(tags, len(tags)):
            works.append(dist.isend(message(rank, r, t), r, group=g, tag=t))
        asked = random.Random(20 + rank).sample(tags, len(tags))
        outs = [torch.full_like(message(r, rank, t), 7) for r, t in asked]
        works += [dist.irecv(out, r, group=g, tag=t) for (r, t), out in zip(asked, outs)]
        for w in random.Random(30 + rank).sample(works, len(works)):
            w.wait()
        for (r, t), out in zip(asked, outs):
            assert torch.equal(out, message(r, rank, t)), (r, t)
        return outs

    def anybody(g):
        """Rank 0 receives from any rank; each rank's messages come in the order in which they were sent."""
        if rank:
            for k in range(20):
                dist.send(torch.tensor([rank, k]), 0, group=g, tag=4)
            return []
        seen = {r: 0 for r in range(1, size)}
        for _ in range(20 * (size - 1)):
            x = torch.empty(2, dtype=torch.int64)
            if isinstance(g._get_backend(torch.device("cpu")), engine_dp.torch.Backend):
                dist.irecv(x, group=g, tag=4).wait()  # torch does not tell the source of its works
                source = x[0].item()
            else:
                source = dist.recv(x, group=g, tag=4)
            assert x.tolist() == [source, seen[source]], (source, x)
            seen[source] += 1
        return [torch.tensor(list(seen.values()))]

    def strided(g):
        out = torch.zeros(6, 4, dtype=torch.bfloat16).t()
        works = [dist.isend(value(rank, torch.bfloat16, (4, 6)), after, group=g), dist.irecv(out, before, group=g)]
        for w in works:
            w.wait()
        return [out]

    def pair(g):
        x = value(rank, torch.int64, (9,))
        if rank == 0:
            dist.send(x, 1, group=g)
        elif rank == 1:
            dist.recv(x, 0, group=g)
        return [x]

    for call in (around, at_once, pair, permuted, anybody, strided):
        both(call.__name__, call, groups)
    messages_of_engine(groups[1], rank, after, before)


def messages_of_engine(g, rank, after, before):
    """Sends that do not wait for their receives, many and large ones; gloo does not have these."""
    large, came = torch.arange(16 << 20, dtype=torch.int32) * (rank + 1), torch.empty(16 << 20, dtype=torch.int32)
    dist.send(large, after, group=g, tag=-1)
    for k in range(600):
        dist.isend(torch.tensor([k * 3 + rank]), after, group=g, tag=k)
    dist.barrier(group=g)
    outs = [torch.empty(1, dtype=torch.int64) for _ in range(600)]
    works = [dist.irecv(out, before, group=g, tag=k) for k, out in reversed(list(enumerate(outs)))]
    works[0].wait()  # this message was sent last; nobody waits for the others
    assert [out.item() for out in outs] == [k * 3 + before for k in range(600)]
    dist.recv(came, before, group=g, tag=-1)
    assert torch.equal(came, torch.arange(16 << 20, dtype=torch.int32) * (before + 1))


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

    for name, call in (("plain", lambda g: trained(g, rank)),
                       ("static graph", lambda g: trained(g, rank, static_graph=True)),
                       ("unused parameters", lambda g: trained(g, rank, find_unused_parameters=True)),
                       ("views", lambda g: trained(g, rank, gradient_as_bucket_view=True)),
                       ("hook", hooked), ("join", uneven)):
        gloo, engine = (outcome(call, g) for g in groups)
        assert not isinstance(gloo, str), f"{name}: {gloo}"
        assert not isinstance(engine, str), f"{name}: {engine}"
        for a, b in zip(gloo, engine):  # with more than two ranks the order of addition differs
            torch.testing.assert_close(a, b, rtol=0 if size == 2 else 1e-4, atol=0 if size == 2 else 1e-6)


def parts(groups, rank, size):
    """Groups of some of the ranks, and a group with an emulated network."""
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


def beside(groups, rank, size):
    """Other backends in one group: calls for tensors on the CPU go to the engine."""
    both_backends = dist.new_group(backend="cpu:engine,cuda:gloo")
    mine = both_backends._get_backend(torch.device("cpu"))
    assert isinstance(mine, engine_dp.torch.Backend), mine
    gc.collect()
    groups = (groups[0], both_backends)
    collectives(groups, rank, size, False)
    sums(groups, rank, size)
    messages(groups, rank, size)
    objects(groups, rank, size)
    data_parallel(groups, rank, size)
    before = mine.engine.statistics().calls
    dist.all_reduce(torch.ones(3), group=both_backends)
    assert mine.engine.statistics().calls == before + 1
    dist.destroy_process_group(both_backends)
    assert repr(mine.engine) == "<engine_dp.Group: closed>"


def wrong(groups, rank, size):
    g = dist.new_group(backend="engine")
    try:
        dist.all_reduce(torch.zeros(3 + rank), group=g)
    except dist.DistBackendError as e:
        assert sum(f"all_reduce(f32, {3 + r}, sum)" in str(e) for r in range(size)) == 2, e
    else:
        raise AssertionError("ranks that disagree got no error")
    g = dist.new_group(backend="engine", timeout=datetime.timedelta(seconds=2))
    began = datetime.datetime.now()
    try:
        dist.recv(torch.zeros(3), None if rank else 1, group=g, tag=8)
    except dist.DistBackendError as e:
        assert " s in recv from " in str(e) and "tag 8 (12 B)" in str(e), e
        assert 1 < (datetime.datetime.now() - began).total_seconds() < 20
    else:
        raise AssertionError("nobody has sent anything")
    rows = torch.zeros(size, 3)
    try:
        dist.all_to_all_single(rows, rows, group=groups[1])
    except ValueError as e:
        assert "may not overlap" in str(e), e
    else:
        raise AssertionError("what others still read was written")
    left_early(dist.new_group(backend="engine"), rank)
    monitored(dist.new_group(backend="engine"), rank, size)


def left_early(g, rank):
    """Rank 0 leaves with a future that is not complete; the others get an error."""
    engine_dp.torch._PATIENCE = 0.1
    if rank == 0:
        future = dist.all_reduce(torch.zeros(3), group=g, async_op=True).get_future()
        g.shutdown()
        assert future.done()
    dist.barrier()  # of another group
    try:
        if rank:
            dist.all_reduce(torch.zeros(3), group=g)
        else:
            future.wait()
    except RuntimeError as e:
        assert "rank 0 has left with work in flight" in str(e), e
    else:
        raise AssertionError("work in flight gave no error")


def monitored(g, rank, size):
    """The last rank comes late to the second barrier. Then all go on with the group."""
    short, end = datetime.timedelta(seconds=1), size - 1
    g.monitored_barrier()
    try:
        if rank != end:
            g.monitored_barrier(short, wait_all_ranks=True)
        assert rank == end, "the missing rank was not noticed"
    except dist.DistBackendError as e:
        assert (f"Rank {end} failed to pass" if rank == 0 else f"Rank {rank} successfully reached") in str(e), e
    dist.barrier()  # of another group
    if rank == end:  # it comes late, and gets an error
        try:
            g.monitored_barrier(short)
            raise AssertionError("a rank that came late got no error")
        except dist.DistBackendError as e:
            assert f"misses rank {end}" in str(e), e
    x = torch.ones(3)
    g.allreduce([x]).wait()
    assert x[0] == size
    g.monitored_barrier()


def again(groups, rank, size):
    """The store outlives the groups that met in it."""
    dist.destroy_process_group()
    for k in range(3):
        dist.init_process_group("engine")
        x = torch.ones(3)
        dist.all_reduce(x)
        assert x[0] == size
        if rank == size - 1:
            time.sleep(0.2)
        began = time.monotonic()
        dist.monitored_barrier()
        assert rank == size - 1 or time.monotonic() - began > 0.1, "a barrier let a rank through by the keys of an older one"
        dist.destroy_process_group()
    dist.init_process_group("engine")


def dies(groups, rank, size):
    """The last rank dies in a monitored barrier, and a rank before it does not come to open a group."""
    g = dist.new_group(backend="engine")
    g.monitored_barrier()
    if rank == size - 1:
        os._exit(0)
    began = time.monotonic()
    try:
        g.monitored_barrier(datetime.timedelta(seconds=60))
    except dist.DistBackendError as e:
        assert str(size - 1) in str(e) and time.monotonic() - began < 10, e
    else:
        raise AssertionError("a rank that has died was not missed")
    os._exit(0)


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    world, *parts = sys.argv[1:]
    dist.init_process_group(world)
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = (dist.group.WORLD, dist.new_group(backend="engine"))
    if world != "gloo":
        groups = (dist.new_group(backend="gloo"), dist.group.WORLD)
    for part in parts:
        if part == "collectives":
            for sync in (True, False):
                collectives(groups, rank, size, sync)
        else:
            globals()[part](groups, rank, size)
    if rank == 0:
        print("\n".join(sorted({t.split(":")[0].split(" ")[0] + " " + t.split(" ", 1)[1][:70] for t in refused})[:20]))
    dist.destroy_process_group()
    assert "engine futures" not in [t.name for t in threading.enumerate()]


main()
