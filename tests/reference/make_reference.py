"""Writes tests/reference/{mlp,lenet}.txt: the losses of 20 steps of PyTorch from the engine's own first weights (read from its
safetensors) on the data that tests/e2e/cli_pytorch_test.c makes; and {mlp,lenet}_update.txt: the same with parameter groups,
frozen weights, clipping and an average of the weights, whose loss stands last. The suite needs these texts and no PyTorch.
usage: make_reference.py ENGINE      (needs torch and numpy)"""
import copy
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn

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


def first_weights(engine, model, folder, x, y):
    """What one step at learning rate 0 leaves."""
    np.save(f"{folder}/x.npy", x)
    np.save(f"{folder}/y.npy", y)
    sets = [f"model={model}", f"data={{set: npy, train: {folder}/x.npy, labels: {folder}/y.npy, val: {folder}/x.npy, "
            f"val_labels: {folder}/y.npy, normalize: off}}", f"batch={SAMPLES}", "train=1st", "optimizer.lr=0", "mode=single", "devices=cpu:1",
            f"log.dir={folder}/{model}"]
    subprocess.run([engine, "run", "--quiet"] + [w for s in sets for w in ("--set", s)], check=True, capture_output=True)
    return read_safetensors(f"{folder}/{model}/ckpt/step-000000001/model.safetensors")


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
            net.load_state_dict(first_weights(sys.argv[1], name, folder, x, y))
        write_updates(name, copy.deepcopy(net), make, x, y)
    for name, net in (("mlp", Mlp()), ("lenet", Lenet())):
        with tempfile.TemporaryDirectory() as folder:
            net.load_state_dict(first_weights(sys.argv[1], name, folder, x, y))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        with open(f"{here}/{name}.txt", "w", encoding="ascii") as f:
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
                loss.backward()
                optimizer.step()
                f.write(f"{loss.item():.9g}\n")


main()
