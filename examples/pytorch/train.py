"""A small DistributedDataParallel training that tells 'engine compare' of its steps.

    torchrun --standalone --nproc-per-node 2 train.py --backend gloo --steps 100
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--backend", default="gloo")
options.add_argument("--static-graph", action="store_true")
options.add_argument("--bucket-mb", type=float, default=25)
options.add_argument("--batch", type=int, default=128, help="of all ranks together")
options.add_argument("--steps", type=int, default=100)
options.add_argument("--seed", type=int, default=int(os.environ.get("ENGINE_SEED", 0)))
o = options.parse_args()

if o.backend == "engine":
    import engine_dp.torch  # noqa: F401  (pip install ./python)
torch.set_num_threads(1)
dist.init_process_group(o.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(o.seed)  # the same weights and the same data on all ranks
layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), static_graph=o.static_graph,
                                            bucket_cap_mb=o.bucket_mb)
x = torch.randn(4096, 784)
y = (x @ torch.randn(784, 10)).argmax(1)  # a rule that can be learned
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
metrics = open(os.environ.get("ENGINE_METRICS", "/dev/stdout"), "w", buffering=1) if rank == 0 else None

for step in range(1, o.steps + 1):
    began = time.perf_counter()
    mine = torch.randint(len(x), (o.batch,))[rank::ranks]  # this rank's share of the batch
    loss = nn.functional.cross_entropy(model(x[mine]), y[mine])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ms = (time.perf_counter() - began) * 1e3
    mean = loss.detach() / ranks
    dist.all_reduce(mean)
    if metrics:
        metrics.write(json.dumps({"step": step, "loss": mean.item(), "ms": ms, "samples": o.batch}) + "\n")

if metrics:
    with torch.no_grad():
        right = (model.module(x).argmax(1) == y).float().mean().item()
    metrics.write(json.dumps({"step": o.steps, "val_accuracy": right}) + "\n")
dist.destroy_process_group()
