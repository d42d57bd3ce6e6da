"""A small data-parallel training that reports its steps to 'engine compare'; --share chooses how gradients are shared.

    torchrun --standalone --nproc-per-node 2 train.py --backend gloo --steps 100
    torchrun --standalone --nproc-per-node 2 train.py --backend engine --share ps-sharded
"""
import argparse
import hashlib
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn

options = argparse.ArgumentParser()
options.add_argument("--backend", default="gloo")
options.add_argument("--share", default="ddp", choices=["ddp", "ps-shared", "ps-dedicated", "ps-sharded"],
                     help="how gradients are shared; with ps-dedicated rank 0 serves and the others compute")
options.add_argument("--staleness", type=int, default=0,
                     help="above 0, with ps-dedicated: the server does not wait for all workers")
options.add_argument("--static-graph", action="store_true")
options.add_argument("--bucket-mb", type=float, default=25)
options.add_argument("--batch", type=int, default=128, help="of all ranks together")
options.add_argument("--steps", type=int, default=100)
options.add_argument("--seed", type=int, default=int(os.environ.get("ENGINE_SEED", 0)))
o = options.parse_args()

if o.backend == "engine" or o.share != "ddp":
    import engine_dp.torch  # pip install ./python
torch.set_num_threads(1)
dist.init_process_group(o.backend)
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(o.seed)  # the same weights and the same data on all ranks
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
if o.share == "ddp":
    net = nn.parallel.DistributedDataParallel(model, static_graph=o.static_graph, bucket_cap_mb=o.bucket_mb)
    worker, workers = rank, ranks
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    update = optimizer.step
else:
    net = engine_dp.torch.ParameterServer(model, torch.optim.SGD(model.parameters(), lr=0.1), o.share[3:],
                                          staleness=o.staleness, bucket_cap_mb=o.bucket_mb)
    worker, workers = net.worker, net.workers  # worker is None where rank 0 serves alone
    update = net.step
x = torch.randn(4096, 784)
y = (x @ torch.randn(784, 10)).argmax(1)  # a rule that can be learned
metrics = open(os.environ.get("ENGINE_METRICS", "/dev/stdout"), "w", buffering=1) if rank == 0 else None


def bytes_sent() -> int:
    """The bytes that this rank has sent; only the engine's groups count them."""
    return dist.group.WORLD.engine.statistics().sent if o.backend == "engine" else 0


before = bytes_sent()
losses, times = torch.zeros(workers, o.steps), []  # each worker's part of the mean
for step in range(o.steps):
    began = time.perf_counter()
    chosen = torch.randint(len(x), (o.batch,))
    if worker is not None:
        mine = chosen[worker::workers]  # this rank's share of the batch
        loss = nn.functional.cross_entropy(net(x[mine]), y[mine])
        net.zero_grad()
        loss.backward()
        losses[worker, step] = loss.detach() / workers
    update()
    times.append((time.perf_counter() - began) * 1e3)
if o.share != "ddp":
    net.meet()
sent = torch.tensor([bytes_sent() - before])
dist.all_reduce(sent, dist.ReduceOp.MAX)
dist.all_reduce(losses)

if metrics:
    for step, (loss, ms) in enumerate(zip(losses.sum(0).tolist(), times), 1):
        metrics.write(json.dumps({"step": step, "loss": loss, "ms": ms, "samples": o.batch}) + "\n")
    with torch.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    last = {"step": o.steps, "val_accuracy": right, "weights_sha256": weights}
    metrics.write(json.dumps({**last, "bytes": sent.item()} if o.backend == "engine" else last) + "\n")
dist.destroy_process_group()
