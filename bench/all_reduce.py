#!/usr/bin/env python3
"""All-reduce of f32 over shm among 2, 4 and 8 ranks, on a quiet machine and beside two loops that want a core each, in us: medians of
interleaved rounds.

usage: bench/all_reduce.py ROUNDS RANKS,... ENGINE [NAME=COMMAND]...

COMMAND is another program, {ranks} in it the number of ranks; it prints "bytes=N median_us=T" for each size, or is
bench/torch_collectives.py, whose gloo is taken."""
import collections
import json
import re
import statistics
import subprocess
import sys

LINES = re.compile(r"bytes= *(\d+) median_us= *([\d.]+)|all_reduce +(\d+) KB +([\d.]+)")


def measure(command, ranks):
    out = subprocess.run(command.format(ranks=ranks), shell=True, capture_output=True, text=True, check=True).stdout
    if out.startswith("{"):
        return {r["bytes"]: r["time_s"] * 1e6 for r in json.loads(out)["results"][0]["rows"]}
    return {int(m[1] or 1024 * int(m[3])): float(m[2] or m[4]) for m in LINES.finditer(out)}


def table(rounds, ranks, busy, commands):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    times = collections.defaultdict(lambda: collections.defaultdict(list))
    try:
        for name in list(commands) * rounds:
            for size, us in measure(commands[name], ranks).items():
                times[size][name].append(us)
    finally:
        for loop in loops:
            loop.kill()
    print(f"{ranks} ranks, {busy} busy" + "".join(f"{name:>12}" for name in commands))
    for size in sorted(times):
        print(f"{size:>15}" + "".join(f"{statistics.median(times[size].get(n, [0])):>12.1f}" for n in commands), flush=True)


if len(sys.argv) < 4:
    sys.exit(__doc__)
programs = {"engine": sys.argv[3] + " bench comm --ranks {ranks} --json", **dict(s.split("=", 1) for s in sys.argv[4:])}
for several in sys.argv[2].split(","):
    for loops_beside in 0, 2:
        table(int(sys.argv[1]), int(several), loops_beside, programs)
