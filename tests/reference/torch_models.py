"""The zoo's networks in plain PyTorch, with the names that torchvision (0.14) and Hugging Face's GPT-2 give their parameters; and
weights by a formula that tests/harness/formula.h has too, so that no weights need to be stored."""
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


# ---- numbers by formula ----

def words(name, count):
    """32 bits for each element: a hash of the name, then of the index."""
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 % (1 << 32)
    with np.errstate(over="ignore"):
        z = np.uint32(h) + np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        z ^= z >> np.uint32(16)
        z *= np.uint32(0x85EBCA6B)
        z ^= z >> np.uint32(13)
        z *= np.uint32(0xC2B2AE35)
        z ^= z >> np.uint32(16)
    return z


def signs(name, count):
    """From -1 to 1."""
    return 2 * ((words(name, count) >> np.uint32(8)) / float(1 << 24)) - 1


def weights(name, shape):
    count = int(np.prod(shape))
    s = signs(name, count)
    if len(shape) > 1:
        v = s * math.sqrt(3.0 * shape[0] / count)
    elif name.endswith("bias"):
        v = 0.1 * s
    else:
        v = 1 + 0.2 * s
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def fill(net):
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.copy_(weights(name, tuple(p.shape)))
    return net


# ---- networks ----

class Mlp(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        sizes = [inputs] + hidden + [classes]
        for i in range(len(sizes) - 1):
            setattr(self, f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))
        self.layers = len(sizes) - 1

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.layers):
            x = getattr(self, f"fc{i + 1}")(x)
            x = torch.relu(x) if i + 1 < self.layers else x
        return x


class Lenet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Vgg11(nn.Module):
    def __init__(self, width, hidden, classes, side):
        super().__init__()
        features, channels = [], 3
        for v in (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0):
            if v:
                features += [nn.Conv2d(channels, v * width, 3, padding=1), nn.ReLU()]
                channels = v * width
            else:
                features += [nn.MaxPool2d(2)]
        self.features = nn.Sequential(*features)
        inputs, classifier = channels * (side // 32) ** 2, []
        for units in hidden:
            classifier += [nn.Linear(inputs, units), nn.ReLU(), nn.Dropout(0)]
            inputs = units
        self.classifier = nn.Sequential(*classifier, nn.Linear(inputs, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inputs != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)
        self.downsample = None
        if stride != 1 or inputs != 4 * planes:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes))

    def forward(self, x):
        y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return torch.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x))


class Resnet(nn.Module):
    def __init__(self, block, blocks, width, classes, stem):
        super().__init__()
        self.stem, channels = stem, width
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False) if stem == "cifar" else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                layers.append(block(channels, width << stage, 2 if stage and i == 0 else 1))
                channels = (width << stage) * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages = len(blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        if self.stem == "imagenet":
            x = F.max_pool2d(x, 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0), nn.Linear(4 * width, width), nn.Dropout(0))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Vit(nn.Module):
    def __init__(self, side, patch, depth, width, heads, classes):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, width))
        self.encoder.layers = nn.Module()
        for i in range(depth):
            setattr(self.encoder.layers, f"encoder_layer_{i}", Encoder(width, heads))
        self.encoder.ln = nn.LayerNorm(width, eps=1e-6)
        self.heads = nn.Module()
        self.heads.head = nn.Linear(width, classes)
        self.depth = depth

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.encoder.pos_embedding
        for i in range(self.depth):
            x = getattr(self.encoder.layers, f"encoder_layer_{i}")(x)
        return self.heads.head(self.encoder.ln(x)[:, 0])


class Conv1D(nn.Module):
    """A linear layer whose weight is (in, out), as in GPT-2."""
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(inputs, outputs)), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp, self.heads = nn.Module(), nn.Module(), heads
        self.attn.c_attn, self.attn.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.mlp.c_fc, self.mlp.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (z.view(n, t, self.heads, c // self.heads).transpose(1, 2) for z in self.attn.c_attn(self.ln_1(x)).split(c, 2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        x = x + self.attn.c_proj((scores.softmax(3) @ v).transpose(1, 2).reshape(n, t, c))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, positions, depth, width, heads, classes):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(classes, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*(GptBlock(width, heads) for _ in range(depth)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, x):
        y = self.ln_f(self.h(self.wte(x) + self.wpe.weight[:x.shape[1]]))
        return y @ self.wte.weight.t()


class Case:
    def __init__(self, net, model, shape, classes, samples, make, tokens=False, rate=0.005):
        self.net, self.model, self.shape, self.classes, self.samples, self.make, self.tokens, self.rate = \
            net, model, shape, classes, samples, make, tokens, rate

    def batch(self):
        if self.tokens:
            count = self.samples * self.shape[0]
            x = torch.from_numpy((words("x", count) % self.classes).astype(np.int64)).view(self.samples, -1)
            return x, torch.from_numpy((words("y", count) % self.classes).astype(np.int64)).view(self.samples, -1)
        x = signs("x", self.samples * int(np.prod(self.shape))).astype(np.float32) * np.float32(1.5)
        return torch.from_numpy(x.reshape((self.samples,) + self.shape)), torch.arange(self.samples) * 7 % self.classes


CASES = [
    Case("mlp", "{zoo: mlp, hidden: [48, 32]}", (1, 28, 28), 10, 6, lambda: Mlp(784, [48, 32], 10)),
    Case("lenet", "lenet", (1, 28, 28), 10, 6, Lenet),
    Case("vgg11", "{zoo: vgg11, width: 8, hidden: [48, 32], dropout: 0}", (3, 32, 32), 10, 4, lambda: Vgg11(8, [48, 32], 10, 32)),
    # sizes of which no input of a relu is so near to zero that rounding errors turn it around: that changes gradients by any amount.
    # The nearest: 1e-5 of the deviation (of 32x32 it is 7e-7) in the first step here, 2.6e-6 in all steps of resnet18
    Case("resnet20", "resnet20", (3, 28, 28), 10, 4, lambda: Resnet(Basic, [3, 3, 3], 16, 10, "cifar"), rate=0.0005),
    Case("resnet18", "{zoo: resnet18, width: 8, stem: imagenet}", (3, 32, 32), 10, 10,
         lambda: Resnet(Basic, [2, 2, 2, 2], 8, 10, "imagenet"), rate=0.001),
    # deeper, its gradients would tell of single rounding errors and not of us: one relu that flips changes them by a tenth
    Case("resnet50", "{zoo: resnet50, width: 4, blocks: [2, 1, 1, 1]}", (3, 32, 32), 10, 4,
         lambda: Resnet(Bottleneck, [2, 1, 1, 1], 4, 10, "imagenet"), rate=0.00002),
    Case("vit-tiny", "{zoo: vit-tiny, depth: 2, width: 32, heads: 2, patch: 4}", (3, 16, 16), 10, 4,
         lambda: Vit(16, 4, 2, 32, 2, 10)),
    Case("gpt-nano", "{zoo: gpt-nano, depth: 2, width: 32, heads: 2}", (24,), 29, 3, lambda: Gpt(24, 2, 32, 2, 29), tokens=True),
]
