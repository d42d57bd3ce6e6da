"""A rank of test_torch.py: what engine_dp.torch.profile records of a step of DistributedDataParallel."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

import engine_dp.torch

SLEPT = 0.2
CPU = [torch.profiler.ProfilerActivity.CPU]


MESSAGES = 2


def work(model, rank):
    for k in range(4):
        if k == 2 and rank == 1:
            time.sleep(SLEPT)
        with torch.profiler.record_function(f"sum {k}"):
            dist.all_reduce(torch.ones(1000))
    model(torch.rand(8, 30)).sum().backward()
    ops = [dist.P2POp(dist.irecv, torch.zeros(70), 1 - rank, tag=2), dist.P2POp(dist.isend, torch.ones(70), 1 - rank, tag=2)]
    for message in dist.batch_isend_irecv(ops):
        message.wait()


def check(path, size, calls, began, ended):
    with open(path) as f:
        whole = json.load(f)
    events = whole["traceEvents"]
    assert whole["otherData"]["ranks"] == size
    for e in events:
        assert e["ph"] in "XMisftbe" and (e["ph"] == "M" or e["ts"] >= 0), e
    titles = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert [t.split(" (")[0] for t in titles[:1]] == ["rank 0"] and len(titles) >= size
    for r in range(size):
        mine = [e for e in events if e["pid"] == r and e["ph"] == "X"]
        ours = [e for e in mine if e.get("cat") == "collective"]
        moved = [e["args"]["bytes"] for e in ours]
        assert len(ours) == calls - MESSAGES and moved == [4000] * 4 + [4 * (30 * 50 + 50)], (calls, moved)
        assert "aten::linear" in {e["name"] for e in mine}
        assert max(e["ts"] + e["dur"] for e in mine) - min(e["ts"] for e in mine) < (ended - began) / 1e3
        for k in range(4):  # one call lies inside the other, though their clocks differ
            outer = next(e for e in mine if e["name"] == f"sum {k}")
            assert outer["ts"] - 200 < ours[k]["ts"], (outer, ours[k])
            assert ours[k]["ts"] + ours[k]["dur"] < outer["ts"] + outer["dur"] + 200, (outer, ours[k])
        assert {(e["name"], e["args"]["peer"], e["args"]["tag"], e["args"]["bytes"]) for e in mine
                if e.get("cat") == "message"} == {("send", 1 - r, 2, 280), ("recv", 1 - r, 2, 280)}
        waited = ours[2]["args"]["waiting_us"]
        assert waited == 0 if r == 1 else SLEPT * 0.95e6 <= waited <= ours[2]["dur"]
        assert "group " in next(e["args"]["name"] for e in events if e["pid"] == r and e["name"] == "thread_name"
                                       and e["tid"] == ours[0]["tid"])


def main(world, folder):
    dist.init_process_group(world)
    rank, size = dist.get_rank(), dist.get_world_size()
    model = nn.parallel.DistributedDataParallel(nn.Linear(30, 50))
    path = os.path.join(folder, "trace.json")
    engine = dist.group.WORLD._get_backend(torch.device("cpu")).engine
    for _ in range(2):  # buckets are rebuilt in the second step
        work(model, rank)
    dist.barrier()
    began = time.monotonic_ns()
    with engine_dp.torch.profile(path, activities=CPU) as prof:
        before = engine.statistics().calls
        work(model, rank)
        calls = engine.statistics().calls - before
    assert any(e.key == "aten::linear" for e in prof.key_averages())
    if rank == 0:
        check(path, size, calls, began, time.monotonic_ns())
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
    with engine_dp.torch.profile(path, activities=CPU, schedule=schedule) as prof:
        for k in range(4):
            with torch.profiler.record_function(f"step {k}"):
                dist.all_reduce(torch.ones(10))
            prof.step()
    if rank == 0:
        with open(path) as f:
            names = [e["name"] for e in json.load(f)["traceEvents"] if e["pid"] == 0]
        assert names.count("all_reduce") == 4 and "step 2" in names and "step 1" not in names, names
    try:
        with engine_dp.torch.profile(path, on_trace_ready=print):
            raise AssertionError("on_trace_ready was accepted")
    except TypeError:
        pass
    dist.destroy_process_group()


main(*sys.argv[1:])
