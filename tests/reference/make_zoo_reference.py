"""Writes tests/reference/zoo/NAME.txt: what PyTorch computes, in doubles, from the weights of torch_models.py: logits, loss, norm and
samples of every gradient, and the losses of three steps of SGD and of AdamW on one batch. tests/conformance/train_pytorch_test.c reads
them. usage: make_zoo_reference.py      (needs torch and numpy)"""
import os

import torch
from torch.nn import functional as F

import torch_models

SAMPLED, STEPS = 6, 3
here = os.path.dirname(os.path.abspath(__file__))


def loss_of(net, x, y, classes):
    return F.cross_entropy(net(x).reshape(-1, classes), y.reshape(-1))


def numbers(values):
    return " ".join(f"{float(v):.9g}" for v in values)


def sampled(t):
    """The norm, then elements at equal distances from each other."""
    flat = t.detach().flatten()
    return numbers([flat.norm()] + [flat[i * flat.numel() // SAMPLED] for i in range(SAMPLED)])


def train(case, make_optimizer):
    net = torch_models.fill(case.make()).double()
    x, y = case.batch()
    x = x if case.tokens else x.double()
    optimizer, losses = make_optimizer(net.parameters()), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(net, x, y, case.classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    net.eval()
    return losses, loss_of(net, x, y, case.classes).item()


def write(case, f):
    net = torch_models.fill(case.make()).double()
    x, y = case.batch()
    x = x if case.tokens else x.double()
    logits = net(x)
    loss = F.cross_entropy(logits.reshape(-1, case.classes), y.reshape(-1))
    loss.backward()
    shape = "x".join(str(d) for d in case.shape)
    print(f"model {case.model}\ninput {shape} {case.classes} {case.samples}\nlogits {sampled(logits)}\nloss {numbers([loss])}", file=f)
    for name, p in net.named_parameters():
        print(f"grad {name} {sampled(p.grad)}", file=f)
    sgd, after = train(case, lambda p: torch.optim.SGD(p, lr=case.rate, momentum=0.9, weight_decay=1e-4))
    print(f"sgd {case.rate} {numbers(sgd)} {numbers([after])}", file=f)
    adamw, after = train(case, lambda p: torch.optim.AdamW(p, lr=case.rate / 10, weight_decay=0.01, eps=1e-4))
    print(f"adamw {case.rate / 10} {numbers(adamw)} {numbers([after])}", file=f)


def main():
    torch.set_num_threads(1)
    for case in torch_models.CASES:
        with open(f"{here}/zoo/{case.net}.txt", "w", encoding="ascii") as f:
            write(case, f)


if __name__ == "__main__":
    main()
