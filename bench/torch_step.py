"""One training step of PyTorch, timed: what a user of the engine would otherwise run.
usage: torch_step.py MODEL RANKS GLOBAL_BATCH STEPS [bf16] [compile] [channels-last]
MODEL: mlp (784-512-512-10), lenet (1x28x28), resnet18 (CIFAR's stem, 3x32x32), gpt (6 layers of 192, 6 heads, 128 tokens of 65)
RANKS > 1: DistributedDataParallel over gloo. bf16: autocast. compile: torch.compile. One thread a rank; data is random and in memory.
Prints one JSON object: the median and least step in ms, the largest peak memory of a rank, the version; or "skipped" and why."""
import json
import math
import os
import resource
import socket
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, CONTEXT = 65, 128


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(),
                         nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for stage in range(4):
        for block in range(2):
            layers.append(Block(width, 64 << stage, 2 if stage and not block else 1))
            width = 64 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, positions, width = x.shape
        parts = self.qkv(x).split(width, 2)
        q, k, v = (p.view(batch, positions, self.heads, -1).transpose(1, 2) for p in parts)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(width // self.heads)
            later = torch.ones(positions, positions).triu(1).bool()
            y = F.softmax(scores.masked_fill(later, float("-inf")), -1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, positions, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=192, heads=6, depth=6):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
        self.layers, self.norm = nn.Sequential(*[Layer(width, heads) for _ in range(depth)]), nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.layers(self.tokens(x) + self.positions))).flatten(0, 1)


MODELS = {"mlp": (mlp, (1, 28, 28)), "lenet": (lenet, (1, 28, 28)), "resnet18": (resnet18, (3, 32, 32)), "gpt": (GPT, None)}


def make(name, batch, flags):
    build, shape = MODELS[name]
    net = build()
    if name == "gpt":
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        return net, optimizer, *torch.randint(0, VOCABULARY, (2, batch, CONTEXT))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x = torch.randn(batch, *shape)
    if "channels-last" in flags:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return net, optimizer, x, torch.randint(0, 10, (batch,))


def worker(rank, name, ranks, batch, steps, flags, port):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net, optimizer, x, y = make(name, batch // ranks, flags)
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
        net = nn.parallel.DistributedDataParallel(net)
    if "compile" in flags:
        net = torch.compile(net)
    warm, times = 5 if steps > 20 else 2, []
    for _ in range(steps + warm):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled="bf16" in flags):
            loss = F.cross_entropy(net(x).float(), y.flatten())
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    memory = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0], dtype=torch.float64)
    if ranks > 1:
        torch.distributed.all_reduce(memory, torch.distributed.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"ms": statistics.median(times[warm:]) * 1e3, "least_ms": min(times[warm:]) * 1e3,
                          "rss": memory.item(), "version": torch.__version__}), flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


def lacks(flags):
    if "bf16" in flags and not hasattr(torch, "autocast"):
        return "no autocast"
    if "compile" in flags and not hasattr(torch, "compile"):
        return "no torch.compile"
    return None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    name, ranks, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    flags = sys.argv[5:]
    why = lacks(flags)
    if why:
        print(json.dumps({"skipped": why, "version": torch.__version__}))
    elif ranks == 1:
        worker(0, name, 1, batch, steps, flags, 0)
    else:
        torch.multiprocessing.spawn(worker, args=(name, ranks, batch, steps, flags, free_port()), nprocs=ranks)


if __name__ == "__main__":
    main()
