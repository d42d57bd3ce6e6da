"""The first losses of the engine and of PyTorch from the same weights (a .safetensors file that PyTorch writes and the engine
reads), on the same batch: GPT-2 with AdamW, ResNet-50 with SGD.

usage: bench/gpu_losses.py [--engine PROGRAM] [--device cuda|cpu] [--small] [--steps N]

  --small   networks of a few layers, for a machine without a GPU

Ends with 1 when the first loss differs by more than 1e-4 of it in f32 (2e-2 in bf16), or a later one by more than
2e-2 (5e-2) of the first."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional as F

from gpu_models import GptWork, ResnetWork, write_weights

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST = {"f32": (1e-4, 2e-2), "bf16": (2e-2, 5e-2)}


def theirs(work, net, batch, precision, steps, device):
    net, optimizer = net.to(device).train(), work.optimizer(net.to(device))
    x, y = (t.to(device) for t in batch)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(net(x).float(), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def ours(args, work, data, weights, precision, folder):
    kind = "cuda:0" if args.device == "cuda" else "cpu:1"
    model = work.model()[:-1] + f", init: {weights}}}"
    sets = ["mode=single", f"devices={kind}", f"model={model}", f"data={data}", f"precision={precision}", f"optimizer={work.optimizer_keys}",
            f"batch={{size: {work.batch}, shards: 1}}", f"train={args.steps}st", "log.every=1st", "eval=off", "checkpoint=off",
            f"log.dir={folder}/run-{precision}"]
    command = [args.engine, "run", "--json", "--quiet"] + [w for s in sets for w in ("--set", s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    with open(os.path.join(json.loads(done.stdout)["run_dir"], "metrics.jsonl"), encoding="utf-8") as f:
        return [line["loss"] for line in map(json.loads, f) if "ms" in line]


def compare(args, name, work):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        keys, data = work.data(folder, work.batch)
        torch.manual_seed(2)
        weights = os.path.join(folder, "begin.safetensors")
        write_weights(weights, work.network())
        for precision in ("f32", "bf16"):
            torch.manual_seed(2)
            mine = ours(args, work, keys, weights, precision, folder)
            other = theirs(work, work.network(), work.batch_of(data), precision, args.steps, args.device)
            off = [abs(a - b) / other[0] for a, b in zip(mine, other)]  # the batch is learned by heart: losses go to 0
            first, later = LEAST[precision]
            good = len(mine) == args.steps and off[0] <= first and max(off) <= later
            failed += not good
            print(f"{name:9}{precision:5} engine  " + " ".join(f"{v:.5f}" for v in mine))
            print(f"{'':14} PyTorch " + " ".join(f"{v:.5f}" for v in other))
            print(f"{'':14} off by {off[0]:.1e} at first, {max(off):.1e} at most: {'ok' if good else 'TOO MUCH'}", flush=True)
    return failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=os.path.join(HERE, "..", "build", "engine"))
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--small", action="store_true")
    p.add_argument("--steps", type=int, default=10)
    args = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    works = {"gpt2": GptWork(8), "resnet50": ResnetWork(32)}
    if args.small:
        works = {"gpt2": GptWork(4, 61, 16, 2, 32, 2), "resnet50": ResnetWork(8, 64, 10, (1, 1, 1, 1), 8)}
    failed = sum(compare(args, name, work) for name, work in works.items())
    print(f"{2 * len(works) - failed} of {2 * len(works)} comparisons are near enough")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
