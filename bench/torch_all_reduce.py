"""All-reduce of torch.distributed by gloo and by the engine, in turns, in microseconds (medians of rank 0):

    torchrun --standalone --nproc-per-node 2 bench/torch_all_reduce.py      (needs: pip install ./python, torch)
"""
import os
import statistics
import time

import torch
import torch.distributed as dist

import engine_dp.torch  # noqa: F401

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
torch.set_num_threads(1)
dist.init_process_group("gloo")
groups = {"gloo": dist.group.WORLD, "engine": dist.new_group(backend="engine")}
if dist.get_rank() == 0:
    print(f"{'size':>10} {'gloo us':>10} {'engine us':>10} {'gloo / engine':>14}")
for kilobytes in (1, 64, 1024, 16384, 65536):
    x = torch.ones(kilobytes * 256)
    times = {name: [] for name in groups}
    for _ in range(max(8, min(300, 60000 // kilobytes))):
        for name, group in groups.items():
            dist.all_reduce(x, group=group)  # the ranks are together, and the other backend's threads at rest
            began = time.perf_counter()
            dist.all_reduce(x, group=group)
            times[name].append(time.perf_counter() - began)
        x.fill_(1)
    us = {name: statistics.median(t) * 1e6 for name, t in times.items()}
    if dist.get_rank() == 0:
        print(f"{kilobytes:>7} KB {us['gloo']:>10.0f} {us['engine']:>10.0f} {us['gloo'] / us['engine']:>14.1f}", flush=True)
dist.destroy_process_group()
