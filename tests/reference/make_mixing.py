"""Writes tests/reference/mixing.h: a small batch mixed by torchvision's MixUp and CutMix, each with a given lambda and middle of the box,
for tests/unit/data_mixing_test.c. The suite needs this header and no torchvision.
usage: make_mixing.py      (needs torch, torchvision)"""
import os
from unittest import mock

import torch
from torchvision.transforms import v2

here = os.path.dirname(os.path.abspath(__file__))
SAMPLES, CLASSES, SHAPE = 5, 4, (2, 6, 7)


def mixed(kind, part, x, labels, middle=(0, 0)):
    """With this lambda and, for CutMix, this column and row instead of drawn ones."""
    transform = getattr(v2, kind)(alpha=1.0, num_classes=CLASSES)
    transform._dist = mock.Mock(sample=lambda shape: torch.tensor(part, dtype=torch.float64))
    drawn = iter(middle)
    with mock.patch("torch.randint", lambda *a, **k: torch.tensor([next(drawn)])):
        return transform(x, labels)


def numbers(t):
    return ", ".join(f"{v:.9g}f" if v != int(v) else f"{int(v)}" for v in t.flatten().tolist())


torch.manual_seed(2)
x, labels = torch.rand(SAMPLES, *SHAPE), torch.randint(CLASSES, (SAMPLES,))
with open(f"{here}/mixing.h", "w", encoding="ascii") as f:
    f.write("/* Written by make_mixing.py: what torchvision makes of a batch. */\n#pragma once\n/* clang-format off */\n")
    f.write(f"enum {{ REFERENCE_SAMPLES = {SAMPLES}, REFERENCE_CLASSES = {CLASSES}, REFERENCE_VALUES = {x[0].numel()} }};\n")
    f.write(f"static const float reference_x[] = {{{numbers(x)}}};\n")
    f.write(f"static const int reference_labels[] = {{{numbers(labels)}}};\n")
    f.write("static const struct { int cut, column, row; double part; float x[REFERENCE_SAMPLES * REFERENCE_VALUES], "
            "y[REFERENCE_SAMPLES * REFERENCE_CLASSES]; } reference_mixed[] = {\n")
    for kind, part, middle in [("MixUp", 0.3, (0, 0)), ("MixUp", 0.85, (0, 0)), ("CutMix", 0.6, (3, 2)), ("CutMix", 0.2, (6, 0)),
                               ("CutMix", 0.99, (1, 1)), ("CutMix", 0.0, (3, 3))]:
        a, b = mixed(kind, part, x, labels, middle)
        f.write(f"    {{{int(kind == 'CutMix')}, {middle[0]}, {middle[1]}, {part}, {{{numbers(a)}}}, {{{numbers(b)}}}}},\n")
    f.write("};\n")
