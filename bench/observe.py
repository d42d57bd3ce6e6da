#!/usr/bin/env python3
"""What watching a run costs: step times with one thing more that writes or serves, beside those without.

usage: bench/observe.py ENGINE [ROUNDS [STEPS]]

  off          metrics.jsonl alone, which every run writes
  again        the same once more: what two equal runs differ by
  csv          log.sinks: [jsonl, csv]
  tensorboard  log.sinks: [jsonl, tensorboard]
  dashboard    --dashboard, and a client that asks as the page does, every 0.7 s; it runs on the same cores
  trace        log.trace over the whole run (where 'engine help log.trace' knows it)
  all          all of these

A run's time is the median of its steps without the first ones (p50), or the fastest twentieth (p5), which other work on
the machine touches less. In each round all are run, in another order each time; a ratio is of two runs of one round,
and the table has the median of the ratios and their quartiles. ROUNDS: 7, STEPS: 4000 unless given."""
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request

WORK = {
    "mlp, ddp on 2": ["mode=ddp", "devices=cpu:2", "model=mlp"],
    "lenet, single": ["mode=single", "devices=cpu:1", "model=lenet"],
}
BASE = ["threads=1", "batch=128", "eval=off", "checkpoint=off", "log.every=100000st"]
WARM, PAUSE = 50, 0.7


def knows_trace(engine):
    done = subprocess.run([engine, "help", "log.trace"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


class Watcher(threading.Thread):
    """Reads what a run says, and once it names a dashboard does what the page does, without drawing."""

    def __init__(self, lines):
        super().__init__(daemon=True)
        self.lines, self.ended, self.asked = lines, threading.Event(), 0

    def run(self):
        for line in self.lines:  # to its end, so that nobody waits for a full pipe
            found = re.match(r"dashboard (http://\S+/)", line)
            if found:
                threading.Thread(target=self.look, args=[found.group(1)], daemon=True).start()
        self.ended.set()

    def look(self, url):
        at = 0
        while not self.ended.is_set():
            try:
                urllib.request.urlopen(url + "api/ranks", timeout=5).read()
                with urllib.request.urlopen(f"{url}api/metrics?since={at}", timeout=5) as answer:
                    answer.read()
                    at = int(answer.headers["Engine-Next"])
                self.asked += 1
            except OSError:
                return
            self.ended.wait(PAUSE)


def run(engine, folder, work, way, steps):
    """The run's step times in ms."""
    sinks = ["jsonl"] + [name for name in ("csv", "tensorboard") if way in (name, "all")]
    sets = BASE + WORK[work] + [f"train={steps}st", f"log.dir={folder}", f"log.sinks=[{', '.join(sinks)}]"]
    if way in ("trace", "all") and knows_trace(engine):
        sets.append(f"log.trace=1..{steps}st")
    words = [engine, "run", "--json"] + [word for text in sets for word in ("--set", text)]
    if way in ("dashboard", "all"):
        words.append("--dashboard=0")
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:
        watcher = Watcher(process.stderr)
        watcher.start()
        code = process.wait()
        watcher.join(10)
    if code:
        sys.exit(f"{' '.join(words)}: exit code {code}")
    if way in ("dashboard", "all") and watcher.asked < 2:
        sys.exit(f"{work}: nobody asked the dashboard while it ran: more STEPS are needed")
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as lines:
        return [line["ms"] for line in map(json.loads, lines) if "ms" in line][WARM:]


def quantile(values, q):
    values = sorted(values)
    return values[round(q * (len(values) - 1))]


def show(work, took, rounds):
    print(f"\n{work}: {rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<12} {'p50 ms':>8} {'beside off':>11} {'quartiles':>19}   {'p5 ms':>8} {'beside off':>11} "
          f"{'quartiles':>19}")
    for way, runs in took.items():
        row = f"{way:<12}"
        for q in (0.5, 0.05):
            times = [quantile(steps, q) for steps in runs]
            ratios = [100 * (time / quantile(off, q) - 1) for time, off in zip(times, took["off"])]
            row += f" {statistics.median(times):>8.3f} "
            if way != "off":
                low, high = quantile(ratios, 0.25), quantile(ratios, 0.75)
                row += f"{statistics.median(ratios):>+9.2f} % {f'{low:+.2f} to {high:+.2f} %':>19}  "
            else:
                row += " " * 33
        print(row.rstrip())
    sys.stdout.flush()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    engine = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 4000
    ways = ["off", "again", "csv", "tensorboard", "dashboard"] + ["trace"] * knows_trace(engine) + ["all"]
    order = random.Random(1)
    print(f"# python3 bench/observe.py ENGINE {rounds} {steps}")
    with tempfile.TemporaryDirectory(prefix="engine-observe-") as top:
        for work in WORK:
            took = {way: [] for way in ways}
            for i in range(rounds):
                for way in order.sample(ways, len(ways)):
                    took[way].append(run(engine, f"{top}/{work[:5]}-{way}-{i}", work, way, steps))
            show(work, took, rounds)


main()
