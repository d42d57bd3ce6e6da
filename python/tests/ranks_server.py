"""A rank of test_server.py: ParameterServer is compared with DistributedDataParallel and with plain computations.

    torchrun ... ranks_server.py BACKEND PART..."""

import copy
import functools
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from engine_dp.torch import ParameterServer

def adagrad(params):
    """It has state before its first step."""
    return torch.optim.Adagrad([p for p in params if p.requires_grad], lr=0.05, initial_accumulator_value=0.1)


SGD = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01)
ADAMW = functools.partial(torch.optim.AdamW, lr=0.01)
KINDS = ("shared", "dedicated", "sharded")
SMALL = 0.002  # MB: several buckets
STEPS = 6
CLIP = 0.2


class Net(nn.Module):
    """A network with two branches, of which a step may take one, a scalar parameter, a frozen one, and a buffer that is
    not changed in place."""

    def __init__(self, salt=0):
        super().__init__()
        torch.manual_seed(3 + salt)
        self.first = nn.Sequential(nn.Linear(20, 41, bias=False), nn.BatchNorm1d(41), nn.ReLU())
        self.left, self.right = nn.Linear(41, 5), nn.Linear(41, 5)
        self.scale = nn.Parameter(torch.ones(()))
        self.frozen = nn.Parameter(1 + torch.rand(20), requires_grad=False)
        self.register_buffer("mean", torch.rand(20))

    def forward(self, x, branch=None):
        x = x * self.frozen - self.mean
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        x = self.first(x) * self.scale
        return self.left(x) if branch == 0 else self.right(x) if branch == 1 else self.left(x) + self.right(x)


def batch(worker, step):
    g = torch.Generator().manual_seed(1000 * step + worker)
    return torch.randn(8, 20, generator=g), torch.randn(8, 5, generator=g)


def branch_of(worker, step, unused):
    """In steps 2 and 4 no worker takes branch 1."""
    return None if not unused else 0 if step in (2, 4) else (worker + step) % 2


def before(step, unused):
    """The batch that a step accumulates first, if any. Before step 4, one worker of two takes branch 1."""
    return step + 100 if step % 3 == 0 and not unused else step + 101 if step == 4 and unused else None


def backward(net, worker, step, unused=False):
    x, y = batch(worker, step)
    nn.functional.mse_loss(net(x, branch_of(worker, step, unused)), y).backward()


def backwards(net, worker, step, unused=False):
    if before(step, unused):
        with net.no_sync():
            backward(net, worker, before(step, unused), unused)
    backward(net, worker, step, unused)


def by_ddp(group, worker, make, steps, unused=False, clip=None, net=None, state=None):
    """The module and optimizer after DistributedDataParallel's steps."""
    net = nn.parallel.DistributedDataParallel(net or Net(), process_group=group, bucket_cap_mb=SMALL,
                                              find_unused_parameters=unused)
    optimizer = make(net.parameters())
    if state:
        optimizer.load_state_dict(copy.deepcopy(state))
    for step in steps:
        optimizer.zero_grad()
        backwards(net, worker, step, unused)
        if clip:
            assert nn.utils.clip_grad_norm_(net.parameters(), clip) > clip, "a norm that is not clipped"
        optimizer.step()
    return net.module, optimizer


def by_server(ps, steps, unused=False):
    for step in steps:
        if not ps.serves_only:
            backwards(ps, ps.worker, step, unused)
        ps.step()
    return ps.module


def workers_of(kind):
    """The group in which DistributedDataParallel has the same workers; every rank makes it."""
    size = dist.get_world_size()
    return dist.new_group(list(range(1, size))) if kind == "dedicated" else None


def equal(ours, theirs, what, exact):
    """Compares every tensor of two state_dicts, or of two states of an optimizer."""
    assert set(ours) == set(theirs), f"{what}: {list(ours)} {list(theirs)}"
    for key, value in theirs.items():
        if isinstance(value, dict):
            equal(ours[key], value, f"{what}, {key}", exact)
        elif isinstance(value, torch.Tensor):
            assert ours[key].shape == value.shape, f"{what}, {key}: {ours[key].shape} {value.shape}"
            if exact:
                assert torch.equal(ours[key], value), f"{what}, {key}: {(ours[key] - value).abs().max()}"
            else:
                torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-6, msg=lambda m: f"{what}, {key}: {m}")


def same_on_all(tensors, exact=True):
    """Checks that all ranks have the same tensors."""
    for key, t in tensors.items():
        first = t.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, t), key


def same_as_ddp(rank, size, exact):
    """Weights, buffers and the optimizer's state; then training goes on from the state that another kind has kept."""
    for kind in KINDS:
        group = workers_of(kind)
        for name, make, unused, clip in (("sgd", SGD, False, None), ("adamw", ADAMW, False, None),
                                         ("adagrad", adagrad, False, None), ("unused", SGD, True, None),
                                         ("clipped", SGD, False, CLIP), ("clipped, unused", SGD, True, CLIP)):
            what = f"{kind} {name}"
            alike = exact and not (clip and kind == "sharded")  # which adds the norm in another order
            ps = ParameterServer(Net(rank), make, server=kind, bucket_cap_mb=SMALL, find_unused_parameters=unused,
                                 clip=clip)
            assert len(ps._buckets) > 1, "one bucket tests too little"
            ours = by_server(ps, range(1, STEPS), unused).state_dict()
            same_on_all(ours)
            state = [ps.optimizer_state_dict()]
            if not ps.serves_only:
                net, optimizer = by_ddp(group, ps.worker, make, range(1, STEPS), unused, clip)
                if ps.worker == 0:  # the buffers are this worker's
                    equal(ours, net.state_dict(), what, alike)
                plain = [optimizer.state_dict()]
            dist.broadcast_object_list(state, 0)
            if not ps.serves_only:
                equal(state[0]["state"], plain[0]["state"], f"{what}, state", alike)
                assert state[0]["param_groups"] == plain[0]["param_groups"], state[0]["param_groups"]
            other = {"shared": "sharded", "sharded": "shared", "dedicated": "dedicated"}[kind]
            net = Net(7)
            net.load_state_dict(ours)
            more = ParameterServer(net, make(net.parameters()), server=other, bucket_cap_mb=1)
            more.load_optimizer_state_dict(state[0])
            further = by_server(more, range(STEPS, STEPS + 3)).state_dict()
            if not ps.serves_only:
                net = Net(8)
                net.load_state_dict(ours)
                net, _ = by_ddp(group, ps.worker, make, range(STEPS, STEPS + 3), net=net, state=state[0])
                if ps.worker == 0:
                    equal(further, net.state_dict(), f"{what}, further", exact)


def begun_alike(rank, size, exact):
    """All ranks begin with rank 0's parameters, also frozen ones, and its optimizer's state. Buffers that do not travel
    stay each rank's own, as DistributedDataParallel's."""
    for kind in KINDS:
        group, net = workers_of(kind), Net(rank)
        optimizer = ADAMW(net.parameters())
        backward(net, rank, 50)
        optimizer.step()
        optimizer.zero_grad()
        begun = [dict(net.named_parameters()), copy.deepcopy(optimizer.state_dict())]
        dist.broadcast_object_list(begun, 0)
        own = copy.deepcopy(dict(net.named_buffers()))
        ps = ParameterServer(net, optimizer, server=kind, bucket_cap_mb=SMALL, broadcast_buffers=False)
        equal(dict(net.named_buffers()), own, f"{kind}, buffers", True)
        net = Net()
        net.load_state_dict({**begun[0], **own})
        equal(dict(ps.module.named_parameters()), dict(net.named_parameters()), f"{kind}, begun", True)
        by_server(ps, [1, 2, 3])
        if not ps.serves_only:
            ddp = nn.parallel.DistributedDataParallel(net, process_group=group, broadcast_buffers=False)
            optimizer = ADAMW(ddp.parameters())
            optimizer.load_state_dict(begun[1])
            for step in [1, 2, 3]:
                optimizer.zero_grad()
                backwards(ddp, ps.worker, step)
                optimizer.step()
            equal(ps.module.state_dict(), net.state_dict(), f"{kind}, trained", exact)


def scheduled(rank, size, exact):
    """A server of its own steps the schedule, too."""
    group = workers_of("dedicated")
    ps = ParameterServer(Net(rank), SGD, server="dedicated", bucket_cap_mb=SMALL)
    schedule = torch.optim.lr_scheduler.ExponentialLR(ps.optimizer, 0.5)
    if ps.serves_only:
        ps.serve(4, each=schedule.step)
    else:
        net = nn.parallel.DistributedDataParallel(Net(), process_group=group, bucket_cap_mb=SMALL)
        optimizer = SGD(net.parameters())
        theirs = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        for step in range(1, 5):
            backwards(ps, ps.worker, step)
            ps.step()
            schedule.step()
            optimizer.zero_grad()
            backwards(net, ps.worker, step)
            optimizer.step()
            theirs.step()
        equal(dict(ps.module.named_parameters()), dict(net.module.named_parameters()), "scheduled", exact)
    assert ps.optimizer.param_groups[0]["lr"] == 0.05 / 16, ps.optimizer.param_groups[0]["lr"]


def bytes_are_the_formula(rank, size, exact):
    """The bytes of one step, into and out of each rank's port."""
    elsewhere = dist.new_group(backend="gloo")
    for kind in KINDS:
        ps = ParameterServer(Net(), SGD, server=kind, bucket_cap_mb=SMALL, broadcast_buffers=False)
        by_server(ps, [1])
        before = dist.group.WORLD.engine.statistics()
        dist.barrier(elsewhere)  # a worker's next gradients come before the server asks for them
        by_server(ps, [2, 4])
        now = dist.group.WORLD.engine.statistics()
        k = sum(p.numel() * 4 for p in ps.module.parameters() if p.requires_grad)
        most = least = (size - 1 if rank == 0 else 1) * k
        if kind == "sharded":  # buckets are multiples of N
            least = 2 * (size - 1) * k // size
            most = 2 * (size - 1) * (k + 4 * (size - 1) * len(ps._buckets)) // size
        for moved in (now.sent - before.sent, now.received - before.received):
            assert 2 * least <= moved <= 2 * most, f"{kind}, rank {rank}: {moved} is not within 2 x [{least}, {most}]"


def simulated(workers, order, steps, bound, clip=None):
    """A server that does not wait, as a plain loop: order names the worker of each update, which computes with the
    weights that it was last given. Workers more than bound ahead of the slowest get their weights later."""
    server, copies = Net(), [Net() for _ in range(workers)]
    optimizer, done, given = SGD(server.parameters()), [0] * workers, [0] * workers
    for w in order:
        backward(copies[w], w, steps[done[w]])
        for p, q in zip(server.parameters(), copies[w].parameters()):
            p.grad = q.grad * (1 / workers) if q.grad is not None else None
        if clip:
            assert nn.utils.clip_grad_norm_(server.parameters(), clip) > clip, "a norm that is not clipped"
        optimizer.step()
        for ours, its in zip(server.buffers(), copies[w].buffers()):
            if w == 0:
                ours.copy_(its)
        done[w] += 1
        for r in range(workers):
            if given[r] < done[r] <= min(done) + bound:
                copies[r].load_state_dict(server.state_dict())
                copies[r].zero_grad()
                given[r] = done[r]
    return server.state_dict()


def in_turn(rank, size, exact):
    workers, steps = size - 1, [1, 2, 4, 5]
    order = list(range(workers)) * len(steps)
    for clip in (None, CLIP / workers):
        ps = ParameterServer(Net(), SGD, server="dedicated", staleness=1, bucket_cap_mb=SMALL, clip=clip)
        by_server(ps, steps)
        ps.meet()
        equal(ps.module.state_dict(), simulated(workers, order, steps, 1, clip), f"in turn, clip {clip}", True)
        same_on_all(ps.module.state_dict())
        if ps.serves_only:
            assert ps.updates == 4 * workers and ps.oldest == workers - 1, (ps.updates, ps.oldest)


def in_order_of_arrival(rank, size, exact):
    """The first worker waits in its first step until the last one has begun its second, which a bound of 1 allows."""
    workers, steps, bound = size - 1, [1, 2, 4, 5, 7, 8], 1
    store = dist.distributed_c10d._get_default_store()
    ps = ParameterServer(Net(), SGD, server="dedicated", staleness=bound, in_turn=False, bucket_cap_mb=SMALL)
    order = []
    if ps.serves_only:
        exchange = ps._exchange
        next_one, give = exchange._next, exchange._give

        def noted(i):
            order.append(next_one(i))
            return order[-1]

        def watched():
            before = list(exchange.given)
            give()
            for done, given, was in zip(exchange.done, exchange.given, before):
                assert given == was or done - min(exchange.done) <= bound, (exchange.done, exchange.given)

        exchange._next, exchange._give = noted, watched
    if ps.worker == 0:
        store.wait(["the last worker is ahead"])
    if ps.worker == workers - 1 and workers > 1:
        by_server(ps, steps[:1])
        store.set("the last worker is ahead", "1")
        by_server(ps, steps[1:])
    else:
        by_server(ps, steps)
    ps.meet()
    shared = [order]
    dist.broadcast_object_list(shared, 0)
    assert sorted(shared[0]) == sorted(list(range(workers)) * len(steps))
    assert shared[0].index(0) > shared[0].index(workers - 1), shared
    equal(ps.module.state_dict(), simulated(workers, shared[0], steps, bound), "in order of arrival", True)
    assert ps.oldest <= (2 * bound + 1) * (workers - 1), ps.oldest


def two_in_order_of_arrival(rank, size, exact):
    """A worker's gradient for the second server does not pass for one for the first."""
    nets = [ParameterServer(nn.Linear(n, 1), SGD, server="dedicated", staleness=2, in_turn=False) for n in (20, 3)]
    for step in range(4):
        if rank == size - 1:
            time.sleep(0.05)
        for ps in nets:
            if not ps.serves_only:
                ps(torch.ones(2, ps.module.in_features)).sum().backward()
            ps.step()
    for ps in nets:
        ps.meet()
        same_on_all(ps.module.state_dict())
        if ps.serves_only:
            assert ps.updates == 4 * ps.workers, ps.updates


def dies(rank, size, exact):
    """In order of arrival, too, a worker that has died is named at once."""
    ps = ParameterServer(Net(), SGD, server="dedicated", staleness=2, in_turn=False)
    by_server(ps, [1, 2])
    began = time.time()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(dist.DistBackendError, "rank 2 (pid", by_server, ps, range(3, 60))
    assert time.time() - began < 20, time.time() - began
    os._exit(0)


def raises(kind, words, call, *given, **named):
    try:
        call(*given, **named)
    except kind as e:
        assert words in str(e), e
    else:
        raise AssertionError(f"no error with: {words}")


def unscale(ps):
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    scaler.unscale_(ps.optimizer)


def complex_norm(rank, size, exact):
    """The norm of complex gradients is that of their parts: a step of rate 1 is as long as clip says."""
    for server in ("shared", "sharded"):
        ps = ParameterServer(nn.Linear(3, 2, dtype=torch.complex64), functools.partial(torch.optim.SGD, lr=1.0), server, clip=1e-3)
        before = [p.detach().clone() for p in ps.module.parameters()]
        ps(torch.ones(4, 3, dtype=torch.complex64)).abs().sum().backward()
        ps.step()
        moved = sum((p.detach() - b).abs().square().sum().item() for p, b in zip(ps.module.parameters(), before))
        assert abs(moved ** 0.5 - 1e-3) < 1e-5, moved


def mistakes(rank, size, exact):
    def make(**ways):
        return ParameterServer(Net(), ways.pop("optimizer", SGD), **ways)

    raises(ValueError, "server 'sharedd': one of shared", make, server="sharedd")
    raises(ValueError, "staleness -1", make, server="dedicated", staleness=-1)
    raises(ValueError, "use server='dedicated', or staleness=0", make, staleness=2)
    raises(ValueError, "LBFGS asks for the loss again", make, optimizer=torch.optim.LBFGS)
    raises(ValueError, "Adafactor cannot step a part", make, optimizer=torch.optim.Adafactor, server="sharded")
    raises(ValueError, "clip 0: the largest norm", make, clip=0)
    raises(ValueError, "that is not the module's", make, optimizer=lambda p: SGD(Net().parameters()))
    raises(ValueError, "there is nothing to serve", ParameterServer, nn.ReLU(), lambda p: SGD(Net().parameters()))
    raises(ValueError, "rank 1 has another module than rank 0: ('weight', (2, 4)", ParameterServer,
           nn.Linear(3 + rank, 2), SGD)
    net = Net()
    net.register_buffer("more", torch.zeros(1 + rank))
    raises(ValueError, "rank 1 has another module than rank 0: ('more', (2,)", ParameterServer, net, SGD)
    ps = make()
    raises(RuntimeError, "step() before backward()", ps.step)
    x, y = batch(0, 1)
    ps(x, 0).sum().backward()
    raises(RuntimeError, "of 8 parameters have no gradient in this step (right.weight, right.bias)", ps.step)
    raises(RuntimeError, "put every backward() but the last in no_sync()", lambda: ps(x, 0).sum().backward())
    raises(ValueError, "groups of [1] parameters, and the optimizer has groups of [9]", ps.load_optimizer_state_dict,
           {"state": {}, "param_groups": [{"params": [0]}]})
    edited = make()
    for change in (lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1e-3), nn.Module.zero_grad, unscale):
        backward(edited, 0, 1)
        change(edited)
        raises(RuntimeError, "was changed between backward(), which gave it to the server, and step(): use clip=NORM",
               edited.step)
        edited = make()
    backward(edited, rank, 1)
    with edited.no_sync():
        backward(edited, rank, 1)
    raises(RuntimeError, "was changed between backward()", edited.step)
    grown = make()
    backward(grown, rank, 1)
    if rank == 0:
        grown.module.mean = torch.zeros(21)
        raises(RuntimeError, "the module's buffers had 416 bytes at the beginning and now have 420", grown._moved.pack)
    served = make(server="dedicated")
    if rank == 0:
        raises(RuntimeError, "this rank serves and does not compute", served, x)
    table = ParameterServer(nn.Embedding(4, 3, sparse=True), SGD)
    raises(TypeError, "the gradient of weight is sparse", lambda: table(torch.tensor([1])).sum().backward())


def uneven(rank, size, exact):
    """Rank 1 does one step fewer: the others get an error and do not wait for ever."""
    group = dist.new_group(backend="engine")
    ps = ParameterServer(Net(), SGD, process_group=group)
    by_server(ps, [1])
    if rank == 1:
        group.shutdown()
    else:
        raises(dist.DistBackendError, "rank 1", by_server, ps, [2])


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    backend, parts = sys.argv[1], sys.argv[2:]
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    for part in parts:
        began = time.time()
        globals()[part](rank, size, backend == "engine" or size == 2)
        if rank == 0:
            print(f"{part}: {time.time() - began:.1f} s", flush=True)
    dist.destroy_process_group()


main()
