#!/usr/bin/env python3
"""Predicted against measured step times over emulated links: python3 bench/predict.py ENGINE [REPEATS] [QUANTILE]...

dp and ddp on 2, 4 and 8 devices of one thread, ports of 1Gbit and 10Gbit with a latency of 50us, one network (mlp with
hidden layers of 1024 and 512, 5.1 MB of gradients, batch 64 in 8 shards). The step of one device is measured in the same
session; 'engine simulate' replays it with the machine's cores shared by all devices (--cores) and the batch by all
(--scaling strong): nothing else is fitted. Then the other algorithms and servers, on 4 devices at 1Gbit. Repeats of all
runs alternate.

QUANTILE says which of the steps stands for a run, measured and replayed: 0.5, the median, on a machine of one's own; on
a machine that others use, a low one, since their work lengthens some steps and shortens none.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

BASE = ["model={zoo: mlp, hidden: [1024, 512]}", "threads=1", "batch={size: 64, shards: 8}", "eval.every=off",
        "checkpoint.every=off", "log.every=1st"]
WARM = 5
RATES = {"1Gbit": 25, "10Gbit": 100}  # steps
OTHERS = ["ddp star", "ddp ring", "ddp tree", "ddp direct", "dp dedicated", "dp sharded"]


def cells():
    """(rate, devices, mode, way): way is what 'engine simulate' is asked for, "" for what is usual."""
    usual = [(rate, n, mode, "") for rate in RATES for n in (2, 4, 8) for mode in ("dp", "ddp")]
    return usual + [("1Gbit", 4, *name.split()) for name in OTHERS]


def sets_of(rate, mode, way):
    emulate = f"emulate: {{bandwidth: {rate}, latency: 50us}}"
    order = "order: ring, " if way == "ring" else ""
    algorithm = f"algorithm: {way}, " if mode == "ddp" and way else ""
    server = [f"dp.server={way}"] if mode == "dp" and way else []
    return [f"comm={{{order}{algorithm}{emulate}}}", *server]


def run(engine, folder, mode, devices, steps, *sets):
    words = [engine, "run", "--quiet"]
    for text in BASE + [f"mode={mode}", f"devices=cpu:{devices}", f"train={steps}st", f"log.dir={folder}", *sets]:
        words += ["--set", text]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
        return [line["ms"] for line in map(json.loads, lines) if "ms" in line][WARM:]


def quantile(values, q):
    values = sorted(values)
    return values[round(q * (len(values) - 1))]


def simulated(engine, folder, rate, devices, mode, way, q):
    words = [engine, "simulate", folder, "--mode", mode, "--devices", str(devices), "--link", f"{rate},50us",
             "--cores", str(os.cpu_count()), "--scaling", "strong", "--quantile", str(q), "--json"]
    if way:
        words += ["--algorithm" if mode == "ddp" else "--server", way]
    done = subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    row = json.loads(done.stdout)["rows"][0]
    return row["step_s"] * 1e3, row["formula_s"] * 1e3, row["way"]


def table(engine, alone, took, q):
    folder = min(alone, key=lambda name: quantile(alone[name], q))
    print(f"one device: {quantile(alone[folder], q):.2f} ms; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
          f"quantile {q} of the steps")
    print(f"{'link':>7} {'devices':>7} {'mode':>4}  {'way':<24} {'measured ms':>11} {'simulated':>10} {'off':>7} "
          f"{'formula':>10} {'off':>7}")
    errors = [[], []]
    for (rate, n, mode, asked), steps in took.items():
        measured = quantile(steps, q)
        replayed, formula, way = simulated(engine, folder, rate, n, mode, asked, q)
        off = [100 * (x / measured - 1) for x in (replayed, formula)]
        for of_all, x in zip(errors, off):
            of_all.append(abs(x))
        print(f"{rate:>7} {n:>7} {mode:>4}  {way:<24} {measured:>11.2f} {replayed:>10.2f} {off[0]:>+6.1f}% "
              f"{formula:>10.2f} {off[1]:>+6.1f}%")
    for name, e in zip(("simulated", "formula"), errors):
        print(f"{name}: median error {statistics.median(e):.1f} %, worst {max(e):.1f} %")
    print()


def main():
    engine = os.path.abspath(sys.argv[1])
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    quantiles = [float(q) for q in sys.argv[3:]] or [0.5]
    with tempfile.TemporaryDirectory(prefix="engine-predict-") as top:
        alone, took = {}, {cell: [] for cell in cells()}
        for i in range(repeats):
            folder = f"{top}/single-{i}"
            alone[folder] = run(engine, folder, "single", 1, 200)
            for rate, n, mode, way in took:
                took[rate, n, mode, way] += run(engine, f"{top}/{rate}-{n}-{mode}-{way}-{i}", mode, n, RATES[rate],
                                                *sets_of(rate, mode, way))
        for q in quantiles:
            table(engine, alone, took, q)


main()
