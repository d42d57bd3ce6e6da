"""Training steps of the engine beside PyTorch's, interleaved: medians over rounds, and their ratio.
usage: bench/steps.py [ROUNDS] [ENGINE] [PYTHON]     PYTHON: one that has torch (default /usr/bin/python3)"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
engine = sys.argv[2] if len(sys.argv) > 2 else os.path.join(here, "..", "build", "engine")
python = sys.argv[3] if len(sys.argv) > 3 else "/usr/bin/python3"


def engine_step(model, mode, ranks, batch, steps):
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"model={model}", f"mode={mode}", f"devices=cpu:{ranks}", "threads=1", f"batch={batch}", f"train={steps}st",
                "data={set: digits, train: 4096, val: 128}", "optimizer={name: sgd, lr: 0.05, momentum: 0.9}", "eval=off",
                "checkpoint=off", f"log.dir={folder}/run"]
        command = [engine, "run", "--json", "--quiet"] + [word for s in sets for word in ("--set", s)]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["step_ms"]["p50"]


def torch_step(model, ranks, batch, steps):
    command = [python, os.path.join(here, "torch_step.py"), model, str(ranks), str(batch), str(steps)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


rows = {}
for _ in range(rounds):
    for model, steps in (("mlp", 200), ("lenet", 150)):
        for ranks, mode in ((1, "single"), (2, "ddp"), (2, "dp")):
            rows.setdefault((model, mode, ranks), ([], []))
            rows[model, mode, ranks][0].append(engine_step(model, mode, ranks, 128, steps))
            rows[model, mode, ranks][1].append(torch_step(model, ranks, 128, steps // 2))
print("model  mode    ranks  engine ms (min..max)      PyTorch ms (min..max)     ratio")
for (model, mode, ranks), (ours, theirs) in rows.items():
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{model:6} {mode:7} {ranks:5}  {a:7.3f} ({min(ours):.3f}..{max(ours):.3f})  {b:8.3f} ({min(theirs):.3f}..{max(theirs):.3f})"
          f"  {b / a:6.2f}")
