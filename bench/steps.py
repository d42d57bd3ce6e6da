"""Training steps of the engine beside PyTorch's on the same work, interleaved: medians over rounds, and their ratio.

usage: bench/steps.py [--engine PROGRAM] [--torch PYTHON[,FLAG...]]... [--floor PROGRAM] [--models M,...] [--modes M,...]
                      [--precisions P,...] [--rounds N] [--least] [--quick] [--json FILE] [--gpu[=WORK] [--bound GPU] [--cpu]]

  --torch PYTHON  one that has torch; repeat it for several. FLAGs: compile (torch.compile), channels-last.
                  By default /usr/bin/python3; 'none': the engine alone
  --floor PROGRAM 'PROGRAM MODEL BATCH RANKS STEPS' prints step_ms=... (min ...): the same work without a framework,
                  BATCH being a rank's own; run with each of its settings, and the fastest counts. f32 only
  --models        of mlp, lenet, resnet18, gpt; all by default
  --modes         of single (1 rank), ddp, dp (2 ranks, beside DistributedDataParallel over gloo); single,ddp by default
  --precisions    f32,bf16 (beside autocast) by default
  --rounds N      5 by default. In a round each is measured in turn, the engine before and after the others
  --least         of a program's steps the fastest, not the median: for a machine that is busy otherwise
  --quick         one round of few steps, to see that all of it works: its numbers mean little
  --json FILE     all that was measured, too
  --gpu           instead: gpt2 and resnet50 (or one of them: --gpu=gpt2) in bf16 on a GPU, beside PyTorch eager and compiled;
                  see gpu_rates.py. Needs a python3 with torch
  --bound GPU     with --gpu: beside the least time of a step there by the engine's cost page (h100, ...)
  --cpu           with --gpu: the same on the CPU with batches of 2, to see that all of it works

One thread a rank. Steps are timed by the programs themselves, without start and data; memory is the largest peak of
a process. GFLOP/s: two operations for each product of the step. of sgemm: beside a product of 1024 x 1024 matrices of
the same precision on one core, measured in the same round, times the ranks."""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = {"single": 1, "ddp": 2, "dp": 2}
SGD, ADAMW = "{name: sgd, lr: 0.01, momentum: 0.9}", "{name: adamw, lr: 0.001}"


class Work:
    """What is trained: the keys of a run, the global batch, and how many steps tell."""

    def __init__(self, model, data, batch, optimizer, steps, torch_steps, floor=({},)):
        self.model, self.data, self.batch, self.optimizer = model, data, batch, optimizer
        self.steps, self.torch_steps, self.floor = steps, torch_steps, floor


DIGITS, SHAPES = "{set: digits, train: 2048, val: 64}", "{set: shapes, train: 512, val: 32}"
WORKS = {
    "mlp": Work("mlp", DIGITS, 128, SGD, 200, 100, ({"LIN": "ip"},)),
    "lenet": Work("lenet", DIGITS, 128, SGD, 200, 60, ({"LIN": "ip"},)),
    "resnet18": Work("resnet18", SHAPES, 32, SGD, 10, 6, ({"CONV": "direct"}, {"CONV": "wino"})),
    "gpt": Work("{zoo: gpt, depth: 6, width: 192, heads: 6}", "{set: text, train: %s, val: 10%%, context: 128, vocabulary: characters}",
                16, ADAMW, 12, 8, ({"LIN": "sgemm"}, {"LIN": "ip"})),
}


def write_text(folder):
    """Text of exactly 65 characters, chosen at random: what it says is no matter."""
    path = os.path.join(folder, "text.txt")
    letters = "".join(chr(c) for c in range(48, 48 + 65))
    chance = random.Random(1)
    with open(path, "w", encoding="ascii") as f:
        f.write(letters + "".join(chance.choice(letters) for _ in range(1 << 18)))
    return path


def run(command, env=None, limit=600):
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env={**os.environ, **(env or {})})
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:300]}\n{done.stderr[-2000:]}")
    return done.stdout


class Engine:
    def __init__(self, program, folder):
        self.program, self.folder, self.text = program, folder, write_text(folder)

    def keys(self, work, precision):
        data = work.data % self.text if "%s" in work.data else work.data
        return [f"model={work.model}", f"data={data}", f"precision={precision}", f"optimizer={work.optimizer}"]

    def step(self, work, precision, mode, steps):
        ranks = RANKS[mode]
        sets = self.keys(work, precision) + [f"mode={mode}", f"devices=cpu:{ranks}", "threads=1", f"batch={work.batch}",
                                             f"train={steps}st", "eval=off", "checkpoint=off", f"log.dir={self.folder}/run-$time"]
        out = json.loads(run([self.program, "run", "--json", "--quiet"] + [w for s in sets for w in ("--set", s)]))
        with open(os.path.join(out["run_dir"], "metrics.jsonl"), encoding="utf-8") as f:
            times = [line["ms"] for line in map(json.loads, f) if "ms" in line]
        return {"ms": out["step_ms"]["p50"], "least_ms": min(times), "rss": max(out["peak_rss_bytes"])}

    def layers(self, work, precision):
        """FLOPs of a step, and the rate of a large product on one core now."""
        sets = self.keys(work, precision) + ["mode=single", "devices=cpu:1", f"batch={work.batch}"]
        out = json.loads(run([self.program, "bench", "layers", "--json", "--seconds", "0.01"] + [w for s in sets for w in ("--set", s)]))
        return {"flops": sum(out["flops"]), "gemm": out["gemm_gflops"] * 1e9}


class Torch:
    def __init__(self, words):
        self.python, *self.flags = words.split(",")
        version = run([self.python, "-c", "import torch; print(torch.__version__)"]).strip()
        self.name = " ".join(["PyTorch", version.split("+")[0], *self.flags])

    def step(self, name, work, precision, ranks, steps):
        command = [self.python, os.path.join(HERE, "torch_step.py"), name, str(ranks), str(work.batch), str(steps), *self.flags]
        return json.loads(run(command + (["bf16"] if precision == "bf16" else [])).splitlines()[-1])


class Floor:
    name = "floor"

    def __init__(self, program):
        self.program = program

    def step(self, name, work, precision, ranks, steps):
        if precision != "f32":
            return {"skipped": "f32 only"}
        command = [self.program, name, str(work.batch // ranks), str(ranks), str(steps)]
        outs = [run(command, {"OMP_NUM_THREADS": "1", **env}) for env in work.floor]
        ms = min(float(re.search(r"step_ms=([0-9.]+)", out).group(1)) for out in outs)
        least = [float(m.group(1)) for m in (re.search(r"step_ms=.*min ([0-9.]+)", out) for out in outs) if m]
        return {"ms": ms, "least_ms": min(least, default=ms), "rss": None}


class Row:
    def __init__(self):
        self.ours, self.rss, self.peers, self.gemm, self.flops, self.note = [], [], {}, [], 0, ""

    def peer(self, name):
        return self.peers.setdefault(name, {"ms": [], "ratio": [], "rss": [], "skipped": None})


def measure(args, engine, peers):
    rows = {}
    for number in range(args.rounds):
        for name in args.models:
            work = WORKS[name]
            steps, torch_steps = (min(4, work.steps), 2) if args.quick else (work.steps, work.torch_steps)
            for precision in args.precisions:
                measured = {}  # peers know no modes: 2 ranks are 2 ranks
                for mode in args.modes:
                    print(f"round {number + 1} of {args.rounds}: {name} {precision} {mode}", file=sys.stderr, flush=True)
                    row = rows.setdefault((name, precision, mode), Row())
                    one_round(row, engine, peers, measured, name, work, precision, mode, steps, torch_steps, args.least)
    return rows


def one_round(row, engine, peers, measured, name, work, precision, mode, steps, torch_steps, least):
    ms = "least_ms" if least else "ms"
    facts = engine.layers(work, precision)
    row.flops = facts["flops"]
    row.gemm.append(facts["gemm"])
    before, theirs = engine.step(work, precision, mode, steps), {}
    for peer in peers:
        key = (peer.name, RANKS[mode])
        if key not in measured:
            try:
                measured[key] = peer.step(name, work, precision, RANKS[mode], torch_steps)
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                print(f"  {peer.name}: {e}", file=sys.stderr, flush=True)
                measured[key] = {"skipped": "it failed"}
        theirs[peer.name] = measured[key]
    after = engine.step(work, precision, mode, steps)
    row.ours += [before[ms], after[ms]]
    row.rss += [before["rss"], after["rss"]]
    for peer, result in theirs.items():
        cell = row.peer(peer)
        if "skipped" in result:
            cell["skipped"] = result["skipped"]
            continue
        cell["ms"].append(result[ms])
        cell["ratio"].append(result[ms] / ((before[ms] + after[ms]) / 2))
        cell["rss"].append(result["rss"])


def span(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f}..{max(values):.3f})"


def megabytes(values):
    known = [v for v in values if v]
    return f"{max(known) / 2**20:.0f}" if known else "-"


def print_table(rows, peers):
    print(f"{'model':9}{'type':5}{'mode':7}{'ranks':>5}  {'engine ms (min..max)':32}{'MB':>5}{'GFLOP/s':>9}{'of sgemm':>9}")
    for (name, precision, mode), row in rows.items():
        ms, ranks = statistics.median(row.ours), RANKS[mode]
        rate = row.flops / ms * 1e3
        print(f"{name:9}{precision:5}{mode:7}{ranks:5}  {span(row.ours):32}{megabytes(row.rss):>5}{rate / 1e9:9.1f}"
              f"{rate / ranks / statistics.median(row.gemm) * 100:7.0f} %")
        for peer in peers:
            cell = row.peer(peer.name)
            if cell["ms"]:
                print(f"{'':28}{span(cell['ms']):32}{megabytes(cell['rss']):>5}   {statistics.median(cell['ratio']):6.2f} times ours: {peer.name}")
            else:
                print(f"{'':28}{'-':32}{'-':>5}   {'':6} {peer.name}: {cell['skipped']}")


def save(path, rows):
    out = [{"model": k[0], "precision": k[1], "mode": k[2], "engine_ms": r.ours, "engine_rss": r.rss, "flops": r.flops,
            "gemm": r.gemm, "peers": r.peers} for k, r in rows.items()]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1)


def words(known):
    def take(text):
        chosen = text.split(",")
        wrong = [w for w in chosen if w not in known]
        if wrong:
            raise argparse.ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(known)}")
        return chosen
    return take


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=os.path.join(HERE, "..", "build", "engine"))
    p.add_argument("--torch", action="append")
    p.add_argument("--floor")
    p.add_argument("--models", type=words(list(WORKS)), default=list(WORKS))
    p.add_argument("--modes", type=words(list(RANKS)), default=["single", "ddp"])
    p.add_argument("--precisions", type=words(["f32", "bf16"]), default=["f32", "bf16"])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--least", action="store_true")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--json")
    p.add_argument("--gpu", dest="gpu_works", type=words(["gpt2", "resnet50"]), nargs="?", const=["gpt2", "resnet50"])
    p.add_argument("--bound", default="")
    p.add_argument("--cpu", action="store_true")
    args = p.parse_args()
    args.rounds = 1 if args.quick else max(1, args.rounds)
    return args


def main():
    args = options()
    if args.gpu_works:
        import gpu_rates
        args.rounds = min(args.rounds, 3)
        gpu_rates.main(args)
        return
    peers = [Torch(words) for words in args.torch or ["/usr/bin/python3"] if words != "none"]
    if args.floor:
        peers.append(Floor(args.floor))
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(args, Engine(args.engine, folder), peers)
    print_table(rows, peers)
    if args.json:
        save(args.json, rows)


if __name__ == "__main__":
    main()
