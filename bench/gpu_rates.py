"""bench/steps.py --gpu: training of GPT-2 (124M) and ResNet-50 in bf16 on one GPU, the engine before and after PyTorch in each
round. What is counted: medians of steps, each waited for; units (tokens, images) a second; the share of the rate at which a large
product of bf16 matrices ran on this GPU in this run, through the engine's own linear op. dp and ddp with several ranks on one GPU
are tests, not measurements: nothing of theirs is timed here."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, limit=900):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]}\n{done.stderr[-1500:]}")
    return done.stdout


def used_memory():
    try:
        return max(int(v) for v in run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], 20).split()) << 20
    except (OSError, RuntimeError, ValueError):
        return 0


class MostMemory:
    """What the GPU's processes have of its memory, looked at while the engine runs."""

    def __enter__(self):
        self.before, self.most, self.stop = used_memory(), 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.wait(0.5):
            self.most = max(self.most, used_memory() - self.before)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class Engine:
    def __init__(self, program, folder, device):
        self.program, self.folder, self.device = program, folder, device

    def sets(self, work, data):
        return [f"model={work.model()}", f"data={data}", "precision=bf16", f"optimizer={work.optimizer_keys}", "mode=single",
                f"devices={self.device}", f"batch={{size: {work.batch}, shards: 1}}"]

    def step(self, work, data, steps):
        more = [f"train={steps}st", "log.every=1st", "eval=off", "checkpoint=off", f"log.dir={self.folder}/run-$time"]
        words = [w for s in self.sets(work, data) + more for w in ("--set", s)]
        with MostMemory() as memory:
            out = json.loads(run([self.program, "run", "--json", "--quiet"] + words))
        with open(os.path.join(out["run_dir"], "metrics.jsonl"), encoding="utf-8") as f:
            times = [line["ms"] for line in map(json.loads, f) if "ms" in line]
        times = times[len(times) // 3:]
        return {"ms": statistics.median(times), "least_ms": min(times), "memory": memory.most, "load": out["time_s"]["load"] / out["time_s"]["total"]}

    def layers(self, work, data):
        words = [w for s in self.sets(work, data) for w in ("--set", s)]
        out = json.loads(run([self.program, "bench", "layers", "--json", "--seconds", "1"] + words))
        return {"flops": sum(out["flops"]), "gemm": out["gemm_gflops"] * 1e9}

    def bound(self, work, data, gpu):
        """The least milliseconds of a step on that GPU, as the program's cost page has them."""
        words = [w for s in self.sets(work, data) for w in ("--set", s)]
        return json.loads(run([self.program, "model", "summary", "-", "--device", gpu, "--json"] + words))["cost"]["step_ms"]


def peers(args):
    for words in args.torch or ["python3", "python3,compile"]:
        if words == "none":
            continue
        python, *flags = words.split(",")
        yield " ".join(["PyTorch", *flags]) if flags else "PyTorch eager", python, flags


def measure(args, engine, name, work, shipped):
    """shipped: the same with as many tokens as the shipped configuration has, for the engine alone; or None."""
    steps = args.steps
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        data, _ = work.data(folder, 4 * work.batch)
        shipped_data = shipped and shipped.data(other, 4 * work.batch)[0]
        facts, ours, theirs, unpadded = engine.layers(work, data), [], {}, []
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}: {name}", file=sys.stderr, flush=True)
            ours.append(engine.step(work, data, steps))
            for title, python, flags in peers(args):
                command = [python, os.path.join(HERE, "gpu_step.py"), name, str(work.batch), str(steps), "50304", *flags]
                try:
                    theirs.setdefault(title, []).append(json.loads(run(command + (["cpu"] if args.cpu else [])).splitlines()[-1]))
                except (RuntimeError, subprocess.TimeoutExpired) as e:
                    print(f"  {title}: {e}", file=sys.stderr, flush=True)
            ours.append(engine.step(work, data, steps))
            if shipped:
                unpadded.append(engine.step(shipped, shipped_data, steps))
        bound = args.bound and engine.bound(work, data, args.bound)
    report(name, work, facts, ours, theirs, unpadded)
    if bound:
        ms = statistics.median(r["ms"] for r in ours)
        print(f"expected {bound:.2f} ms or more, measured {ms:.2f}, share {100 * bound / ms:.0f} %")
    return {"name": name, "batch": work.batch, **facts, "engine": ours, "engine_unpadded": unpadded, "peers": theirs}


def report(name, work, facts, ours, theirs, unpadded):
    def line(title, results):
        ms = statistics.median(r["ms"] for r in results)
        rate = facts["flops"] / ms * 1e3
        print(f"{name:9} {title:18} {ms:9.2f} {work.units / ms * 1e3:12,.0f} {work.unit}/s {rate / 1e12:8.1f} {rate / facts['gemm'] * 100:6.1f} % "
              f"{max(r['memory'] for r in results) / 2**30:7.1f}", end="")
        return ms
    mine = line("engine", ours)
    print(f"   waiting for data {max(r['load'] for r in ours) * 100:.1f} %")
    for title, results in theirs.items():
        print(f"   {line(title, results) / mine:.2f} times ours")
    if unpadded:
        print(f"   {line('engine, 50,257', unpadded) / mine:.2f} times the padded one's")


def main(args):
    sys.path.insert(0, HERE)
    from gpu_models import GptWork, ResnetWork

    batch = 2 if args.cpu else 32
    works = {"gpt2": (GptWork(batch, 50304), GptWork(batch, 50257)), "resnet50": (ResnetWork(2 if args.cpu else 256), None)}
    args.steps = 4 if args.quick else 60
    device, out = "cpu:1" if args.cpu else "cuda:0", []
    print(f"{'':9} {'':18} {'ms a step':>9} {'':12} {'':8} {'TFLOP/s':>8} {'of GEMM':>8} {'GiB':>7}   (GPT-2: 50,304 tokens on both sides, 50,257 padded as it is usual; then as it is shipped)")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.gpu_works:
            out.append(measure(args, Engine(args.engine, folder, device), name, *works[name]))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(out, f, indent=1)
