"""What bench/steps.py --gpu and bench/gpu_losses.py train: GPT-2 (124M) and ResNet-50 in PyTorch as their users write them, with
the parameter names of Hugging Face and torchvision, and the same as keys of a run of the engine."""
import ctypes
import json
import math
import os
import random
import struct

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (z.view(n, t, self.heads, c // self.heads).transpose(1, 2) for z in self.c_attn(x).split(c, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3)) / math.sqrt(c // self.heads)
            later = torch.ones(t, t, device=x.device).triu(1).bool()
            y = scores.masked_fill(later, float("-inf")).softmax(3) @ v
        return self.c_proj(y.transpose(1, 2).reshape(n, t, c))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, positions, vocabulary, depth, width, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        y = self.wte(x) + self.wpe.weight[:x.shape[1]]
        for block in self.h:
            y = block(y)
        return F.linear(self.ln_f(y), self.wte.weight).flatten(0, 1)


class Bottleneck(nn.Module):
    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)
        self.downsample = None
        if stride != 1 or inputs != 4 * planes:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (self.downsample(x) if self.downsample else x), inplace=True)


class Resnet(nn.Module):
    def __init__(self, blocks, width, classes):
        super().__init__()
        self.conv1, self.bn1, channels = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                layers.append(Bottleneck(channels, width << stage, 2 if stage and i == 0 else 1))
                channels = 4 * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages, self.fc = len(blocks), nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


class GptWork:
    """unit: what is counted a second."""
    unit = "tokens"

    def __init__(self, batch, vocabulary=50304, context=1024, depth=12, width=768, heads=12):
        self.batch, self.vocabulary, self.context, self.units = batch, vocabulary, context, batch * context
        self.size = (depth, width, heads)

    def network(self):
        return Gpt(self.context, self.vocabulary, *self.size)

    def model(self):
        return "{zoo: gpt2, depth: %d, width: %d, heads: %d}" % self.size

    def data(self, folder, samples):
        """Files of random tokens: windows of context + 1 that overlap by the one that is foretold."""
        vocabulary = self.vocabulary
        chance, count = random.Random(1), samples * self.context + 1
        tokens = [chance.randrange(min(vocabulary, 50257)) for _ in range(count)]
        for name in ("train.bin", "val.bin"):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(struct.pack(f"<{count}H", *tokens))
        keys = f"{{set: tokens, train: {folder}/train.bin, val: {folder}/val.bin, type: u16, context: {self.context}, vocabulary: {vocabulary}}}"
        return keys, torch.tensor(tokens)

    def batch_of(self, tokens):
        n = self.batch * self.context
        return tokens[:n].view(self.batch, -1), tokens[1:n + 1].view(self.batch, -1)

    def optimizer(self, net):
        fused = {"fused": True} if next(net.parameters()).is_cuda else {}
        return torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.0, **fused)

    optimizer_keys = "{name: adamw, lr: 1e-4, weight_decay: 0}"


class ResnetWork:
    unit = "images"

    def __init__(self, batch, side=224, classes=1000, blocks=(3, 4, 6, 3), width=64):
        self.batch, self.side, self.classes, self.units, self.blocks, self.width = batch, side, classes, batch, blocks, width

    def network(self):
        return Resnet(self.blocks, self.width, self.classes)

    def model(self):
        return "{zoo: resnet50, blocks: [%s], width: %d}" % (", ".join(map(str, self.blocks)), self.width)

    def data(self, folder, samples):
        torch.manual_seed(1)
        x, y = torch.randn(samples, 3, self.side, self.side), torch.randint(0, self.classes, (samples,), dtype=torch.int64)
        y[0] = self.classes - 1
        for part in ("train", "val"):
            write_npy(os.path.join(folder, f"{part}-x.npy"), x if part == "train" else x[:2], "<f4")
            write_npy(os.path.join(folder, f"{part}-y.npy"), (y if part == "train" else y[:2]).to(torch.int32), "<i4")
        keys = "{set: npy, train: %s/train-x.npy, labels: %s/train-y.npy, val: %s/val-x.npy, val_labels: %s/val-y.npy, classes: %d, normalize: off}" % (
            (folder,) * 4 + (self.classes,))
        return keys, (x, y)

    def batch_of(self, data):
        return data[0][:self.batch], data[1][:self.batch]

    def optimizer(self, net):
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    optimizer_keys = "{name: sgd, lr: 0.01, momentum: 0.9}"


def write_npy(path, t, kind):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (kind, ", ".join(map(str, t.shape)) + ("," if t.ndim == 1 else ""))
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(raw(t))


def raw(t):
    t = t.detach().contiguous()
    return ctypes.string_at(t.data_ptr(), t.numel() * t.element_size())


def write_weights(path, net):
    """A .safetensors file with the names and layouts of Hugging Face and torchvision: GPT-2 keeps its matrices as (in, out)."""
    tensors, at, header, parts = dict(net.state_dict()), 0, {}, []
    for name, t in tensors.items():
        if t.dtype != torch.float32:
            continue  # num_batches_tracked
        if name.startswith("h.") and name.endswith("weight") and t.ndim == 2:
            t = t.t()
        t = t.cpu().clone(memory_format=torch.contiguous_format).contiguous()
        data = raw(t)
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for data in parts:
            f.write(data)
