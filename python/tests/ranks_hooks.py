"""A rank of test_torch.py: callbacks of futures, torch's communication hooks over the engine as over gloo, and groups
that are split. Its arguments are the parts to run."""

import os
import sys
import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import (debugging_hooks, default_hooks,
                                                         optimizer_overlap_hooks, post_localSGD_hook, powerSGD_hook,
                                                         quantization_hooks)
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import functional_sgd, PostLocalSGDOptimizer

import engine_dp.torch

STEPS = 5


def plain(hook):
    return lambda ddp, group: ddp.register_comm_hook(group, hook)


def power(hook, **ways):
    def register(ddp, group):
        ddp.register_comm_hook(powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2, **ways), hook)
    return register


def overlapping(ddp, group):
    """The hook steps each parameter: the optimizer has nothing left to do."""
    state = optimizer_overlap_hooks._OptimizerHookState(functional_sgd._FunctionalSGD([], 0.1, _allow_empty_param_list=True))
    ddp.register_comm_hook(group, optimizer_overlap_hooks._hook_then_optimizer(default_hooks.allreduce_hook, state))
    return lambda: None


def local(ddp, group):
    ddp.register_comm_hook(post_localSGD_hook.PostLocalSGDState(group, group, start_localSGD_iter=2),
                           post_localSGD_hook.post_localSGD_hook)
    own = torch.optim.SGD(ddp.parameters(), 0.1, momentum=0.9)
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=2, process_group=group)
    return PostLocalSGDOptimizer(own, averager).step


HOOKS = {
    "default": plain(default_hooks.allreduce_hook), "fp16": plain(default_hooks.fp16_compress_hook),
    "bf16": plain(default_hooks.bf16_compress_hook), "noop": plain(debugging_hooks.noop_hook),
    "fp16 of the default": plain(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    "PowerSGD": power(powerSGD_hook.powerSGD_hook, matrix_approximation_rank=2),
    "PowerSGD from zero": power(powerSGD_hook.powerSGD_hook, warm_start=False, orthogonalization_epsilon=1e-8),
    "batched PowerSGD": power(powerSGD_hook.batched_powerSGD_hook, use_error_feedback=False),
    "PowerSGD in bf16": lambda ddp, group: ddp.register_comm_hook(
        powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2),
        default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook)),
    "quantized by tensor": plain(quantization_hooks.quantization_pertensor_hook),
    "quantized by channel": plain(quantization_hooks.quantization_perchannel_hook),
    "post-local SGD": local, "optimizer overlap": overlapping,
}


def network():
    torch.manual_seed(3)
    return nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 5))


def trained(group, rank, register, bucket=0.02):
    """bucket: in MB; 0.02 gives several, of equal sizes, which could change places unnoticed."""
    net = nn.parallel.DistributedDataParallel(network(), process_group=group, bucket_cap_mb=bucket)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    step = register(net, group) or optimizer.step
    g = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        net.zero_grad()
        nn.functional.mse_loss(net(torch.randn(8, 64, generator=g)), torch.randn(8, 5, generator=g)).backward()
        step()
    return [p.detach().clone() for p in net.parameters()]


def outcome(call):
    try:
        return call()
    except (RuntimeError, TypeError, AssertionError) as e:
        return f"{type(e).__name__}: {e}"


def hooks(rank, size):
    groups = dist.new_group(backend="gloo"), dist.new_group(backend="engine")
    for name, register in HOOKS.items():
        # The callbacks of these start calls, which over gloo may meet another bucket's: it aborts the process.
        bucket = 25 if "PowerSGD" in name or "quantized" in name else 0.02
        gloo, engine = (outcome(lambda: trained(g, rank, register, bucket)) for g in groups)
        if isinstance(gloo, str):
            print(f"{name}: gloo refuses it ({gloo[:90]}), engine {'too' if isinstance(engine, str) else 'does not'}")
            continue
        assert not isinstance(engine, str), f"{name}: {engine}"
        for a, b in zip(gloo, engine):  # with more than two ranks the order of addition differs
            torch.testing.assert_close(a, b, rtol=0 if size == 2 else 1e-3, atol=0 if size == 2 else 1e-4, msg=name)
        print(f"{name}: as gloo")
        if bucket == 25 and name != "PowerSGD from zero":  # that one forgets all buckets after each
            several(groups[1], rank, size, register, name)


def several(group, rank, size, register, name):
    """Several buckets: all ranks end with the same weights, and do so again."""
    for p, q in zip(*(trained(group, rank, register) for _ in range(2))):
        every = [torch.empty_like(p) for _ in range(size)]
        dist.all_gather(every, p)
        assert all(torch.equal(p, e) for e in (*every, q)), name


def total(group, value, op=dist.ReduceOp.SUM):
    return dist.all_reduce(torch.tensor([value]), op, group=group, async_op=True).get_future()


def futures(rank, size):
    """A callback waits for a call of its own, for one that was started before and after it, and for the callbacks of
    its own; one that fails harms nobody else."""
    group = dist.new_group(backend="engine")

    def wrong(future):
        raise KeyError("of a callback")

    def within(future):
        return [total(group, k).then(lambda f: total(group, 10 * f.wait()[0].item()).wait()[0].item()).wait()
                for k in (1, 2)]

    kept, there = [], threading.Event()

    def later():
        assert there.wait(60)
        return 0

    failed = total(group, 1).then(wrong)
    first = total(group, 3).then(lambda f: (f.wait()[0] + later() + kept[0].wait()[0]).item())
    kept.append(total(group, 4))
    there.set()
    nested = total(group, 5).then(within)
    assert first.wait() == 7 * size and nested.wait() == [10 * size * size, 20 * size * size]
    for _ in range(3):  # the calls of callbacks keep their order, whatever the program starts meanwhile
        many = [total(group, k).then(lambda f: total(group, f.wait()[0].item()).wait()[0].item()) for k in range(40)]
        plain = [total(group, 1000 + k) for k in range(40)]
        assert [f.wait() for f in many] == [k * size * size for k in range(40)]
        assert [f.wait()[0].item() for f in plain] == [(1000 + k) * size for k in range(40)]
    try:
        failed.wait()
        raise AssertionError("the callback's exception was lost")
    except Exception as e:
        assert "of a callback" in str(e), e
    bad = dist.all_reduce(torch.ones(3), group=group, async_op=True)

    def fail():
        raise OSError("of putting the results in place")

    bad._finish = fail
    try:
        bad.get_future().wait()
        raise AssertionError("the future hid an exception")
    except Exception as e:
        assert "of putting" in str(e), e
    assert total(group, 1).wait()[0] == size
    numbered(group)
    dist.destroy_process_group(group)


def numbered(group):
    """The user's first call is the first."""
    fresh = dist.new_group(backend="engine")
    try:
        dist.all_reduce(torch.zeros(3 + dist.get_rank()), group=fresh)
    except dist.DistBackendError as e:
        assert "collective 1" in str(e), e
    else:
        raise AssertionError("ranks that disagree got no error")


def backward(rank, size):
    """Where the ranks leave no core free, an all-reduce within backward is over when it returns, and its callbacks run on
    the calling thread; elsewhere they do not. The sums are the same."""
    with engine_dp.torch.options(bandwidth=1e9):
        assert not dist.new_group(backend="engine")._crowded
    group = dist.new_group(backend="engine")
    assert group._crowded == (len(os.sched_getaffinity(0)) < 2 * size)
    for crowded in (True, False):
        group._crowded = crowded

        def hook(grad):
            t = torch.full((300,), rank + 1.0)
            work = dist.all_reduce(t, group=group, async_op=True)
            now = t.clone() if crowded else None
            thread = work.get_future().then(lambda f: threading.current_thread()).wait()
            assert (thread is threading.main_thread()) == crowded, thread
            assert work.wait() and (now is None or torch.equal(t, now)) and t[299] == size * (size + 1) / 2, t

        x = torch.ones(3, requires_grad=True)
        x.register_hook(hook)
        x.sum().backward()
    dist.destroy_process_group(group)


def shared_memory(rank, size):
    """What gloo refuses, or does, is told before anything is sent; the group remains usable."""
    group = dist.new_group(backend="engine")
    for call in (lambda x: dist.all_reduce(x, group=group), lambda x: dist.broadcast(x, 0, group=group)):
        try:
            call(torch.ones(1).expand(4))
            raise AssertionError("elements at one place were accepted")
        except ValueError as e:
            assert "expand()" in str(e), e
    every = [torch.empty(4) for _ in range(size)]
    dist.all_gather(every, torch.full((1,), float(rank)).expand(4), group=group)  # it is only read
    assert [x.tolist() for x in every] == [[r] * 4 for r in range(size)]


def split(rank, size):
    """torch's split_group, of the world and of a part; ranks that are in none get no group."""
    ends = dist.split_group(split_ranks=[[size - 1, 0]])
    if rank in (0, size - 1):
        assert dist.get_rank(ends) == (1 if rank == 0 else 0) and dist.get_world_size(ends) == 2
        x = torch.tensor([rank + 1])
        dist.broadcast(x, size - 1, group=ends)
        assert x.item() == size
        assert total(ends, 1).then(lambda f: total(ends, 5).wait()[0].item()).wait() == 10
        alone = dist.split_group(ends, [[0], [1]], group_desc="alone")
        assert dist.get_world_size(alone) == 1 and alone.group_desc == "alone"
        dist.destroy_process_group(alone)
        dist.destroy_process_group(ends)
    else:
        assert ends is dist.GroupMember.NON_GROUP_MEMBER
    assert total(None, 1).wait()[0] == size


def threads(rank, size):
    before = len(os.listdir("/proc/self/task"))
    for _ in range(3):
        group = dist.new_group(backend="engine")
        dist.all_reduce(torch.ones(3), group=group)
        dist.destroy_process_group(group)
    names = [open(f"/proc/self/task/{task}/comm").read() for task in os.listdir("/proc/self/task")]
    assert len(names) <= before, names


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("engine")
    for part in sys.argv[1:]:
        globals()[part](dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


main()
