"""Writes tests/reference/layers.txt: inputs, outputs and gradients of single layers as PyTorch computes them (in double, so that what
is written is right to the last digit), for tests/conformance/device_reference_test.c. The suite needs this text and no PyTorch.
usage: make_layers.py      (needs torch)

A case is a line "case NAME", then a line for each tensor: its name, its count, its values."""
import math
import os

import torch
from torch.nn import functional as F

here = os.path.dirname(os.path.abspath(__file__))


def attention(x, heads, causal):
    """x: (n, positions, 3 heads size)"""
    n, positions, width = x.shape
    size = width // 3 // heads
    q, k, v = (t.view(n, positions, heads, size).transpose(1, 2) for t in x.split(width // 3, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(size)
    if causal:
        scores = scores.masked_fill(torch.ones(positions, positions).triu(1).bool(), -math.inf)
    return (scores.softmax(3) @ v).transpose(1, 2).reshape(n, positions, width // 3)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def rmsnorm(x, w):
    return x / torch.sqrt((x ** 2).mean(-1, keepdim=True) + 1e-6) * w


# name: (shape of x, shapes of the weights, function)
CASES = {
    "gelu": ((2, 30), [], F.gelu),
    "gelu tanh": ((2, 30), [], gelu_tanh),
    "silu": ((2, 30), [], F.silu),
    "sigmoid": ((2, 30), [], torch.sigmoid),
    "tanh": ((2, 30), [], torch.tanh),
    "layernorm": ((3, 4, 20), [(20,), (20,)], lambda x, w, b: F.layer_norm(x, (20,), w, b, 1e-5)),
    "layernorm no bias": ((3, 20), [(20,)], lambda x, w: F.layer_norm(x, (20,), w, None, 1e-5)),
    "rmsnorm": ((3, 4, 20), [(20,)], rmsnorm),
    "position": ((3, 4, 6), [(4, 6)], lambda x, w: x + w),
    "prepend": ((3, 4, 6), [(6,)], lambda x, w: torch.cat([w.expand(3, 1, 6), x], dim=1)),
    "mean of image": ((2, 5, 3, 4), [], lambda x: x.mean((2, 3))),
    "tokens": ((2, 5, 3, 4), [], lambda x: x.flatten(2).transpose(1, 2)),
    "attention": ((2, 9, 24), [], lambda x: attention(x, 2, False)),
    "attention causal": ((2, 9, 24), [], lambda x: attention(x, 2, True)),
    "attention long": ((1, 40, 24), [], lambda x: attention(x, 2, True)),
    "leaky relu": ((2, 30), [], F.leaky_relu),
    "leaky relu of 0.1": ((2, 30), [], lambda x: F.leaky_relu(x, 0.1)),
}


def tensor(f, name, t):
    f.write(f"{name} {t.numel()} {' '.join(f'{v:.9g}' for v in t.flatten().tolist())}\n")


def random(shape):
    """Rounded to floats: the engine must see the very same."""
    return torch.randn(shape).double()


def write_case(f, name, x_shape, w_shapes, function):
    x = random(x_shape).requires_grad_()
    w = [random(s).requires_grad_() for s in w_shapes]
    y = function(x, *w)
    dy = random(y.shape)
    y.backward(dy)
    f.write(f"case {name}\n")
    for label, t in [("x", x), ("y", y), ("dy", dy), ("dx", x.grad)]:
        tensor(f, label, t)
    for i, t in enumerate(w):
        tensor(f, f"w{i}", t)
        tensor(f, f"dw{i}", t.grad)


def write_embedding(f):
    tokens = torch.tensor([[3, 0, 3, 6], [1, 6, 6, 2]])
    w = random((7, 5)).requires_grad_()
    y = F.embedding(tokens, w)
    dy = random(y.shape)
    y.backward(dy)
    f.write("case embedding\n")
    for label, t in [("x", tokens), ("y", y), ("dy", dy), ("w0", w), ("dw0", w.grad)]:
        tensor(f, label, t)


def write_cross_entropy(f):
    x = random((3, 4, 9)).requires_grad_()
    labels = torch.randint(9, (3, 4))
    loss = F.cross_entropy(x.view(12, 9), labels.view(12))
    loss.backward()
    f.write("case cross-entropy\n")
    for label, t in [("x", x), ("y", x.softmax(2)), ("dx", x.grad), ("labels", labels), ("loss", loss)]:
        tensor(f, label, t)


def write_loss(f, name, loss_of, shape, mixed=False, weighted=False, smoothing=0.0, values=False):
    """A loss of each feature or class, as the mean over samples of PyTorch's with reduction='none'."""
    n, classes = shape
    x = random(shape).requires_grad_()
    lines = [("x", x)]
    if values:
        target = torch.rand(shape).double()
        lines += [("target", target)]
    else:
        labels, others = torch.randint(classes, (n,)), torch.randint(classes, (n,))
        shares = 0.5 + 0.5 * torch.rand(n).double()
        one, two = (F.one_hot(t, classes).double() for t in (labels, others))
        target = shares[:, None] * one + (1 - shares[:, None]) * two if mixed else one
        lines += [("labels", labels)] + ([("others", others), ("shares", shares)] if mixed else [])
    more = {}
    if weighted:
        more["weight"] = 2 * torch.rand(classes).double()
        lines += [("weights", more["weight"])]
    if smoothing:
        more["label_smoothing"] = smoothing
        lines += [("smoothing", torch.tensor([smoothing]))]
    loss = loss_of(x, target, reduction="none", **more).reshape(n, -1)
    loss = (loss.sum(1) if loss_of is F.cross_entropy else loss.mean(1)).mean()
    loss.backward()
    f.write(f"case {name}\n")
    for label, t in lines + [("dx", x.grad), ("loss", loss)]:
        tensor(f, label, t)


def write_losses(f):
    bce = F.binary_cross_entropy_with_logits
    write_loss(f, "cross-entropy smoothed", F.cross_entropy, (5, 9), smoothing=0.1)
    write_loss(f, "cross-entropy weighted", F.cross_entropy, (5, 9), weighted=True)
    write_loss(f, "cross-entropy mixed", F.cross_entropy, (5, 9), mixed=True)
    write_loss(f, "cross-entropy of all", F.cross_entropy, (6, 9), mixed=True, weighted=True, smoothing=0.2)
    write_loss(f, "mse mixed", F.mse_loss, (5, 9), mixed=True)
    write_loss(f, "bce", bce, (5, 9), values=True)
    write_loss(f, "bce of classes", bce, (5, 9))
    write_loss(f, "bce mixed", bce, (5, 9), mixed=True)


# After all others, whose numbers it leaves as they are.
GROUPNORM = {
    "groupnorm": ((3, 6, 3, 4), [(6,), (6,)], lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5)),
    "groupnorm blocks": ((2, 32, 3, 3), [(32,), (32,)], lambda x, w, b: F.group_norm(x, 8, w, b, 1e-5)),
    "groupnorm not affine": ((3, 12), [], lambda x: F.group_norm(x, 3, eps=1e-3)),
}

torch.manual_seed(1)
with open(f"{here}/layers.txt", "w", encoding="ascii") as out:
    for case, (x_shape, w_shapes, function) in CASES.items():
        write_case(out, case, x_shape, w_shapes, function)
    write_embedding(out)
    write_cross_entropy(out)
    write_losses(out)
    for case, (x_shape, w_shapes, function) in GROUPNORM.items():
        write_case(out, case, x_shape, w_shapes, function)
