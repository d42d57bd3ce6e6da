"""Steps of PyTorch's DistributedDataParallel, and of FSDP2 (fully_shard) for the gpt, over gloo and over the engine, in turns, in
milliseconds (medians of the slower rank), and how much of what communication costs over gloo the engine takes away:

    torchrun --standalone --nproc-per-node 2 bench/torch_ddp.py [MODEL...]      (needs: pip install ./python, torch)

The models and their optimizers are torch_step.py's; batches are those of all ranks together. 'bound' is the same step with
calls that return at once and move nothing. The share is (gloo - engine) / (gloo - bound). All three train one network, in
the same memory: the group that the wrapper knows hands its calls to one backend or the other. SECONDS sets how long each
model is measured."""
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
SECONDS = float(os.environ.get("SECONDS", 20))

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
dist.init_process_group("gloo")
groups = {"gloo": dist.group.WORLD, "engine": dist.new_group(backend="engine"), "bound": None}


class Done(dist._Work):
    def __init__(self, tensors):
        super().__init__()
        self.future = torch.futures.Future()
        self.future.set_result(tensors)

    def wait(self, timeout=None):
        return True

    def get_future(self):
        return self.future


class Switch(dist.ProcessGroup):
    """Hands its calls to the group 'now'; to nobody if that is None. FSDP2 is given its two calls as 'comm's."""
    now = dist.group.WORLD

    def allreduce(self, tensors, opts):
        return self.now.allreduce(tensors, opts) if self.now else Done(tensors)

    def broadcast(self, tensors, opts):
        return groups["gloo"].broadcast(tensors, opts)

    def allgather(self, outputs, inputs, opts):
        return groups["gloo"].allgather(outputs, inputs, opts)

    def getBackendName(self):
        return "switch"


switch = Switch(dist.get_rank(), dist.get_world_size())


class Gather:
    def allocate(self, size, *, dtype, device):
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        if switch.now:
            return dist.all_gather_into_tensor(output_tensor, input_tensor, switch.now, async_op)


class Scatter(Gather):
    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if switch.now:
            return dist.reduce_scatter_tensor(output_tensor, input_tensor, op, switch.now, async_op)


def sharded(net):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    mesh = DeviceMesh.from_group(dist.group.WORLD, "cpu")
    for module in (*net.layers, net):
        fully_shard(module, mesh=mesh)
        module.set_custom_all_gather(Gather())
        module.set_custom_reduce_scatter(Scatter())
    return net


def steps(name):
    """Makes the model of this name, and gives what one step is."""
    torch.manual_seed(0)
    net, optimizer, x, y = torch_step.make(name.partition("-")[0], BATCHES[name] // dist.get_world_size(), [])
    if name.endswith("fsdp2"):
        net = sharded(net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    else:
        net = DistributedDataParallel(net, process_group=switch)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y.flatten()).backward()
        optimizer.step()

    return step


def turn(step, again=3):
    """Milliseconds of a step, after one that meets the other backend's caches."""
    step()
    began = time.perf_counter()
    for _ in range(again):
        step()
    return (time.perf_counter() - began) / again * 1e3


def measured(name):
    """For each backend the times of its turns."""
    step = steps(name)
    times = {backend: [] for backend in groups}
    began, over = time.perf_counter(), torch.zeros(1)
    for _ in range(3):  # the wrapper arranges its buckets
        step()
    while not over:
        for backend, switch.now in groups.items():
            dist.barrier()
            times[backend].append(turn(step))
        switch.now = groups["gloo"]
        over.fill_(time.perf_counter() - began > SECONDS)
        dist.all_reduce(over)
    return times


if dist.get_rank() == 0:
    print(f"{'model':<10} {'batch':>5} {'gloo ms':>9} {'engine ms':>9} {'bound ms':>9} {'gloo / engine':>14} {'share':>6}", flush=True)
for name in sys.argv[1:] or BATCHES:
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, measured(name))
    if dist.get_rank() == 0:
        ms = {backend: statistics.median(map(max, zip(*(times[backend] for times in every)))) for backend in groups}
        share = (ms["gloo"] - ms["engine"]) / (ms["gloo"] - ms["bound"])
        print(f"{name:<10} {BATCHES[name]:>5} {ms['gloo']:>9.2f} {ms['engine']:>9.2f} {ms['bound']:>9.2f} "
              f"{ms['gloo'] / ms['engine']:>14.2f} {share:>6.2f}", flush=True)
dist.destroy_process_group()
