"""Collectives of torch.distributed by gloo and by the engine, and those of engine_dp.Group, in turns, in microseconds (medians of the
slowest rank). Sizes are those of the whole buffer; send_recv is a message to the other rank of a pair and one back. Each line is measured
for about SECONDS (1). LOOPS (0): so many other programs each want a core meanwhile:

    torchrun --standalone --nproc-per-node 2 bench/torch_collectives.py [COLLECTIVE[:KILOBYTES,...]]...
                                                                               (needs: pip install ./python, torch)
"""
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

import engine_dp.torch

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
dist.init_process_group("gloo")
SECONDS, LOOPS = float(os.environ.get("SECONDS", 1)), int(os.environ.get("LOOPS", 0))
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"gloo": dist.group.WORLD, "engine": dist.new_group(backend="engine"),
          "engine_dp": engine_dp.Group(f"file:///tmp/engine-bench-{os.environ['MASTER_PORT']}", rank, size)}


def there_and_back(send, recv):
    for sends in (rank % 2 == 0, rank % 2 == 1) if rank ^ 1 < size else ():
        (send if sends else recv)()


def calls(g, x, y, part):
    if isinstance(g, engine_dp.Group):
        return {"all_reduce": lambda: g.all_reduce(x, out=x), "broadcast": lambda: g.broadcast(x),
                "all_gather": lambda: g.all_gather(part, out=y), "reduce_scatter": lambda: g.reduce_scatter(x),
                "all_to_all": lambda: g.all_to_all(x, out=y),
                "send_recv": lambda: there_and_back(lambda: g.send(x, rank ^ 1), lambda: g.recv(y, rank ^ 1)),
                "reduce": lambda: g.reduce(x), "gather": lambda: g.gather(part), "scatter": lambda: g.scatter(x, part),
                "barrier": g.barrier}
    return {"all_reduce": lambda: dist.all_reduce(x, group=g), "broadcast": lambda: dist.broadcast(x, 0, group=g),
            "all_gather": lambda: dist.all_gather_into_tensor(y, part, group=g),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, x, group=g),
            "all_to_all": lambda: dist.all_to_all_single(y, x, group=g),
            "send_recv": lambda: there_and_back(lambda: dist.send(x, rank ^ 1, g), lambda: dist.recv(y, rank ^ 1, g)),
            "reduce": lambda: dist.reduce(x, 0, group=g),
            "gather": lambda: dist.gather(part, None if rank else list(y.chunk(size)), 0, group=g),
            "scatter": lambda: dist.scatter(part, None if rank else list(x.chunk(size)), 0, group=g),
            "barrier": lambda: dist.barrier(group=g)}


def measure(name, kilobytes):
    x = torch.ones(kilobytes * 256)
    buffers = x, torch.ones_like(x), torch.ones(len(x) // size)
    times = {which: [] for which in groups}

    def turn():
        for which, g in groups.items():
            call = calls(g, *buffers)
            call[name]()  # the other groups' threads are at rest
            call["barrier"]()
            began = time.perf_counter()
            call[name]()
            times[which].append(time.perf_counter() - began)
        x.fill_(1)

    began = time.perf_counter()
    turn()
    turns = torch.tensor(SECONDS / (time.perf_counter() - began))
    dist.all_reduce(turns, dist.ReduceOp.MAX)
    for _ in range(max(7, min(200, int(turns)))):
        turn()
    slowest = torch.tensor(list(times.values()), dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [statistics.median(t) * 1e6 for t in slowest.tolist()]


BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(LOOPS if rank == 0 else 0)]
if rank == 0:
    print(f"{'collective':<15} {'size':>8} {'gloo us':>10} {'engine us':>10} {'engine_dp us':>12} {'gloo / engine':>14}")
for word in sys.argv[1:] or calls(None, None, None, None):
    name, _, sizes = word.partition(":")
    for kilobytes in [int(k) for k in (sizes or "1" * (name == "barrier") or "1,4,16,64,256,1024,4096,16384").split(",")]:
        gloo, engine, own = measure(name, kilobytes)
        if rank == 0:
            print(f"{name:<15} {kilobytes:>5} KB {gloo:>10.1f} {engine:>10.1f} {own:>12.1f} {gloo / engine:>14.2f}", flush=True)
for loop in loops:
    loop.kill()
dist.destroy_process_group()
