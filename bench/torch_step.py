"""One training step of PyTorch, timed: what a user of the engine would otherwise run.
usage: torch_step.py mlp|lenet RANKS GLOBAL_BATCH STEPS     RANKS > 1: DistributedDataParallel over gloo
Prints the median step in ms. One thread a rank; data is random and already in memory."""
import os
import statistics
import sys
import time

import torch
from torch import nn


def network(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, 10))
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
                         nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def worker(rank, name, ranks, batch, steps):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = network(name)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29877")
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.randn(batch // ranks, 1, 28, 28), torch.randint(0, 10, (batch // ranks,))
    times = []
    for _ in range(steps + 5):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"{statistics.median(times[5:]) * 1e3:.3f}", flush=True)


if __name__ == "__main__":
    which, count, size, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if count == 1:
        worker(0, which, 1, size, length)
    else:
        torch.multiprocessing.spawn(worker, args=(which, count, size, length), nprocs=count)
