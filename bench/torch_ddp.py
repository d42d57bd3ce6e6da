"""Steps of PyTorch's DistributedDataParallel, and of FSDP2 (fully_shard) for the gpt, over gloo and over the engine, in turns, in
milliseconds (medians of rank 0):

    torchrun --standalone --nproc-per-node 2 bench/torch_ddp.py [MODEL...]      (needs: pip install ./python, torch)

The models and their optimizers are torch_step.py's; batches are those of all ranks together."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import engine_dp.torch  # noqa: F401
import torch_step

BATCHES = {"mlp": 128, "lenet": 128, "resnet18": 16, "gpt": 16, "gpt-fsdp2": 16}
TURNS = {"mlp": 60, "lenet": 60, "resnet18": 6, "gpt": 10, "gpt-fsdp2": 10}

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
dist.init_process_group("gloo")
groups = {"gloo": dist.group.WORLD, "engine": dist.new_group(backend="engine")}


def sharded(net, group):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in net.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def steps(name, group):
    """Makes the model of this name over the group, and gives what one step is."""
    torch.manual_seed(0)
    net, optimizer, x, y = torch_step.make(name.partition("-")[0], BATCHES[name] // dist.get_world_size(), [])
    if name.endswith("fsdp2"):
        net = sharded(net, group)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    else:
        net = DistributedDataParallel(net, process_group=group)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y.flatten()).backward()
        optimizer.step()

    return step


if dist.get_rank() == 0:
    print(f"{'model':<10} {'batch':>5} {'gloo ms':>10} {'engine ms':>10} {'gloo / engine':>14}")
for name in sys.argv[1:] or BATCHES:
    step = {backend: steps(name, group) for backend, group in groups.items()}
    times = {backend: [] for backend in groups}
    for turn in range(TURNS[name]):
        for backend in groups:
            for again in range(3):  # the first of them meets the other backend's caches
                began = time.perf_counter()
                step[backend]()
                if turn and again:
                    times[backend].append(time.perf_counter() - began)
            dist.barrier()
    ms = {backend: statistics.median(t) * 1e3 for backend, t in times.items()}
    if dist.get_rank() == 0:
        print(f"{name:<10} {BATCHES[name]:>5} {ms['gloo']:>10.2f} {ms['engine']:>10.2f} {ms['gloo'] / ms['engine']:>14.2f}",
              flush=True)
dist.destroy_process_group()
