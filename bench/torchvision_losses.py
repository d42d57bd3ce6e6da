"""A student's script of torchvision and the engine from the same first weights, picture by picture and step by step: ResNet-18 on an
ImageFolder of PNG files, Resize and CenterCrop, DistributedSampler's order, SGD with momentum.

usage: bench/torchvision_losses.py [--engine PROGRAM] [--steps N] [--size PIXELS] [--seed N] [--batch N] [--each N] [--lr RATE]
(needs torch, torchvision, and Pillow 12 or earlier: docs/data.md)

Batchnorm of small batches and relu make any rounding grow fast, so PyTorch trains three times: once more with each of its first weights
moved by a rounding, and once in f64, which is what both are roundings of. Ends with 1 where the engine is farther from PyTorch than 1e-4 and ten times the largest difference so far of PyTorch to
itself. A network without batchnorm stays within 1e-6: tests/e2e/cli_pytorch_test.c holds one."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms

from gpu_models import write_weights

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = 4
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def make_pictures(folder, pictures):
    """A class is a frequency of stripes; sizes and colours differ. The last batch of an epoch is smaller."""
    random = np.random.default_rng(7)
    for part, each in (("train", pictures), ("val", 2)):
        for k in range(CLASSES):
            os.makedirs(f"{folder}/{part}/{k}")
            for i in range(each):
                height, width = random.integers(70, 200, 2)
                y, x = np.mgrid[:height, :width]
                wave = np.sin((x * random.uniform(0.5, 1) + y * random.uniform(0, 0.5)) * (k + 1) / 8)
                picture = wave[..., None] * random.uniform(30, 90, 3) + random.uniform(90, 160, 3) + random.normal(0, 12, (height, width, 3))
                Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(f"{folder}/{part}/{k}/{i:02}.png")


def theirs(args, folder, moved=False, dtype=torch.float32):
    """The script: nothing in it knows of the engine but the file of weights that it leaves."""
    torch.manual_seed(args.seed)
    data = torchvision.datasets.ImageFolder(f"{folder}/train", transforms.Compose([
        transforms.Resize(args.size * 8 // 7), transforms.CenterCrop(args.size), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]))
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=args.seed)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    net = torchvision.models.resnet18(num_classes=CLASSES)
    if moved:
        with torch.no_grad():
            for w in net.parameters():
                w.mul_(1 + 2 ** -22 * (torch.rand_like(w) - 0.5))
    elif dtype == torch.float32:
        write_weights(f"{folder}/first.safetensors", net)
    net = net.to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    losses, epoch = [], 0
    while len(losses) < args.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x.to(dtype)), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        epoch += 1
    return losses[:args.steps]


def ours(args, folder):
    data = (f"{{set: images, train: {folder}, size: {args.size}, resize: {args.size * 8 // 7}, resample: torchvision, order: pytorch, "
            f"normalize: {{mean: {MEAN}, std: {STD}}}}}")
    sets = [f"model={{zoo: resnet18, stem: imagenet, init: {folder}/first.safetensors}}", f"data={data}", f"seed={args.seed}",
            f"batch={{size: {args.batch}, shards: 1}}", f"optimizer={{name: sgd, lr: {args.lr}, momentum: 0.9}}", f"train={args.steps}st", "mode=single",
            "devices=cpu:1", "log.every=1st", "eval=off", "checkpoint=off", f"log.dir={folder}/run"]
    done = subprocess.run([args.engine, "run", "--json", "--quiet"] + [w for s in sets for w in ("--set", s)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    with open(f"{folder}/run/metrics.jsonl", encoding="utf-8") as f:
        return [json.loads(line)["loss"] for line in f if '"loss":' in line and '"val' not in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default=os.path.join(HERE, "..", "build", "engine"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--each", type=int, default=11, help="pictures of a class")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(folder, args.each)
        a, again, b = theirs(args, folder), theirs(args, folder, moved=True), ours(args, folder)
        exact = theirs(args, folder, dtype=torch.float64)
    failed, itself = len(a) != len(b), 0
    for step, (x, moved, y, e) in enumerate(zip(a, again, b, exact), 1):
        itself = max(itself, abs(moved - x))
        failed |= abs(y - x) > 1e-4 + 10 * itself
        print(f"step {step:3}: PyTorch {x:.7f}, engine {y:.7f}: {y - x:+.1e}; PyTorch again {moved - x:+.1e}; "
              f"to f64: PyTorch {x - e:+.1e}, engine {y - e:+.1e}")
    print(f"largest difference of {len(a)} losses: engine {max(abs(x - y) for x, y in zip(a, b)):.1e}, PyTorch to itself {itself:.1e}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
