"""Writes tests/reference/{mlp,lenet,pictures}.txt: the losses of 20 steps of PyTorch from the engine's own first weights (read from
its safetensors) on the data that tests/e2e/cli_pytorch_test.c makes; and {mlp,lenet}_update.txt: the same with parameter groups,
frozen weights, clipping and an average of the weights, whose loss stands last. The suite needs these texts and no PyTorch.
pictures: a folder of PNG files through torchvision's ImageFolder, Resize and CenterCrop, in the order of DistributedSampler.
usage: make_reference.py ENGINE      (needs torch, torchvision and numpy)"""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms

SAMPLES, STEPS = 64, 20
here = os.path.dirname(os.path.abspath(__file__))


def data():
    i = np.arange(SAMPLES * 784, dtype=np.uint64)
    word = (i * np.uint64(2654435761) + np.uint64(12345)) % np.uint64(1 << 32)
    x = ((word >> np.uint64(8)).astype(np.float32) / np.float32(1 << 24)).reshape(SAMPLES, 1, 28, 28)
    y = ((np.arange(SAMPLES) * 7 + 3) % 10).astype(np.int64)
    return x, y


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        rest = f.read()
    return {name: torch.from_numpy(np.frombuffer(rest[t["data_offsets"][0]:t["data_offsets"][1]], dtype=np.float32)
                                   .reshape(t["shape"]).copy())
            for name, t in header.items() if name != "__metadata__"}


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def first_weights(engine, model, data, folder):
    """What one step at learning rate 0 leaves."""
    sets = [f"model={model}", f"data={data}", f"batch={SAMPLES}", "train=1st", "optimizer.lr=0", "mode=single", "devices=cpu:1",
            f"log.dir={folder}/run"]
    subprocess.run([engine, "run", "--quiet"] + [w for s in sets for w in ("--set", s)], check=True, capture_output=True)
    return read_safetensors(f"{folder}/run/ckpt/step-000000001/model.safetensors")


def write_losses(name, net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    with open(f"{here}/{name}.txt", "w", encoding="ascii") as f:
        for x, y in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            f.write(f"{loss.item():.9g}\n")


def make_pictures(folder):
    """Picture k of class c: 'seed' 9 c + k, (40 + 3 k) x (36 + 5 c) pixels, as make_pictures of the test."""
    for part, each in (("train", 9), ("val", 1)):
        for c in range(3):
            os.makedirs(f"{folder}/{part}/{c}")
            for k in range(each):
                y, x, channel = np.mgrid[:36 + 5 * c, :40 + 3 * k, :3]
                picture = 60 + (x * (3 + channel) + y * (5 - channel) + (9 * c + k) * 37) % 128
                Image.fromarray(picture.astype(np.uint8)).save(f"{folder}/{part}/{c}/{k}.png")


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv2d1, self.conv2d2, self.linear1 = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 16, 3, 2), nn.Linear(16 * 6 * 6, 3)

    def forward(self, x):
        return self.linear1(torch.relu(self.conv2d2(torch.relu(self.conv2d1(x)))).flatten(1))


def picture_batches(folder, batch, seed):
    """27 pictures in batches of 8, the last of an epoch of 3."""
    data = datasets.ImageFolder(f"{folder}/train", transforms.Compose([
        transforms.Resize(32), transforms.CenterCrop(28), transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]))
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=seed)
    for step in range(STEPS):
        if step % 4 == 0:
            sampler.set_epoch(step // 4)
            batches = iter(DataLoader(data, batch_size=batch, sampler=sampler))
        yield next(batches)


def mlp_update(net):
    groups = {"own": [], "bias": [], "slow": []}
    for name, p in net.named_parameters():
        p.requires_grad = name != "fc2.weight"
        kind = "bias" if name.endswith("bias") else "slow" if name == "fc1.weight" else "own"
        if p.requires_grad:
            groups[kind].append(p)
    return torch.optim.AdamW([{"params": groups["bias"], "lr": 2e-3, "weight_decay": 0},
                              {"params": groups["slow"], "lr": 3e-4, "betas": (0.8, 0.95)},
                              {"params": groups["own"]}], lr=1e-3, weight_decay=0.1), 0.05


def lenet_update(net):
    bias, rest = [], []
    for name, p in net.named_parameters():
        p.requires_grad = not name.startswith("conv1.") and name != "conv2.weight"
        if p.requires_grad:
            (bias if name.endswith("bias") else rest).append(p)
    return torch.optim.SGD([{"params": bias, "weight_decay": 0, "momentum": 0.5}, {"params": rest}], lr=2, momentum=0.9,
                           nesterov=True, weight_decay=0.01), 0.01


def write_updates(name, net, make, x, y):
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    optimizer, clip = make(net)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    trained = [p for p in net.parameters() if p.requires_grad]
    clipped = 0
    with open(f"{here}/{name}_update.txt", "w", encoding="ascii") as f:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(trained, clip)
            clipped += bool(norm > clip)
            optimizer.step()
            average.update_parameters(net)
            f.write(f"{loss.item():.9g}\n")
        with torch.no_grad():
            f.write(f"{nn.functional.cross_entropy(average(x), y).item():.9g}\n")
    assert clipped >= 4, clipped


def main():
    x, y = data()
    for name, net, make in (("mlp", Mlp(), mlp_update), ("lenet", Lenet(), lenet_update)):
        with tempfile.TemporaryDirectory() as folder:
            np.save(f"{folder}/x.npy", x)
            np.save(f"{folder}/y.npy", y)
            arrays = (f"{{set: npy, train: {folder}/x.npy, labels: {folder}/y.npy, val: {folder}/x.npy, val_labels: {folder}/y.npy, "
                      "normalize: off}")
            net.load_state_dict(first_weights(sys.argv[1], name, arrays, folder))
        write_updates(name, copy.deepcopy(net), make, x, y)
        write_losses(name, net, [(torch.from_numpy(x), torch.from_numpy(y))] * STEPS)
    with tempfile.TemporaryDirectory() as folder:
        make_pictures(folder)
        net = Pictures()
        model = "{layers: [{conv2d: {out: 8, kernel: 3, stride: 2}}, relu, {conv2d: {out: 16, kernel: 3, stride: 2}}, relu, flatten, {linear: 3}]}"
        net.load_state_dict(first_weights(sys.argv[1], model, f"{{set: images, train: {folder}, size: 28, normalize: off}}", folder))
        write_losses("pictures", net, picture_batches(folder, 8, 0))


main()
