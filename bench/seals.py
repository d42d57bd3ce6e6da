#!/usr/bin/env python3
"""What sealing and encrypting cost between two hosts, which are network namespaces here.

usage: bench/seals.py BENCH_SEALS [ROUNDS]      (9 rounds unless given)

In each round two ranks sum up 64 MB, then 1 KB, with comm.secure off, sealed and encrypted, one after another. The table has
medians over the rounds: processor time of both ranks together, time of an all-reduce, and the ratios of each round to its 'off'.

Needs user and network namespaces (unshare -rn) and ip."""
import os
import statistics
import subprocess
import sys
import tempfile

GUARDS = ("off", "sealed", "encrypted")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "harness", "hosts.sh")


def measure(bench, guard):
    """Processor time, time of 64 MB, time of 1 KB, in us."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["unshare", "-rn", "sh", SCRIPT, folder, "2", "none", bench, guard], capture_output=True, text=True,
                              check=False)
        said = []
        for k in range(2):
            with open(f"{folder}/host{k}.out", encoding="utf-8") as out, open(f"{folder}/host{k}.err", encoding="utf-8") as err:
                said.append([float(x) for x in out.read().split()])
                if done.returncode or len(said[k]) != 3:
                    sys.exit(done.stdout + done.stderr + err.read())
    return said[0][0] + said[1][0], said[0][1], said[0][2]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    bench, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 9
    of = {guard: [] for guard in GUARDS}
    for _ in range(rounds):
        for guard in GUARDS:
            of[guard].append(measure(bench, guard))
    print("%-10s %16s %6s %12s %6s %12s %6s" % ("guard", "processor, 64 MB", "ratio", "time, 64 MB", "ratio", "time, 1 KB", "ratio"))
    for guard in GUARDS:
        middle = [statistics.median(m[i] for m in of[guard]) for i in range(3)]
        ratio = [statistics.median(m[i] / o[i] for m, o in zip(of[guard], of["off"])) for i in range(3)]
        print("%-10s %13.1f ms %6.2f %9.1f ms %6.2f %9.1f us %6.2f" % (
            guard, middle[0] / 1e3, ratio[0], middle[1] / 1e3, ratio[1], middle[2], ratio[2]))


if __name__ == "__main__":
    main()
