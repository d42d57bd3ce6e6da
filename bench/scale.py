#!/usr/bin/env python3
"""How a group grows: ranks over network namespaces, which are hosts in all that concerns the network.

usage: bench/scale.py BENCH_SCALE [RANKS[xTHREADS]]...      (2 8 32 128 256 512x16 1024x16 unless given)

N ranks stand on at most 16 hosts, as N processes, or NxT: in processes of T threads. They meet and open a group over TCP,
with TLS; rest; call 20 barriers and 20 all-reduces of 4 KB; then one of them, in the middle, is killed while all others
wait for it. A line of the table is of one run:

  open         s from the first that begins to the last whose group is open
  streams      TCP connections that a rank has open, on average and at most
  MB           by which a rank's process has grown (divided by its threads)
  rest         TCP segments with data that all send in a second in which nobody calls
  barrier, sum ms, and TCP segments with data that all send for one
  known        s from the kill until the last of the others has failed; whether all name the rank

Needs user and network namespaces (unshare -rn) and ip."""
import collections
import os
import resource
import subprocess
import sys
import tempfile

HOSTS = 16
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "harness", "hosts.sh")
COLUMNS = "%6s %12s %7s %8s %5s %5s %7s %9s %9s %7s %7s %7s  %s"


def measure(bench, ranks, threads):
    hosts = min(ranks, HOSTS)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["unshare", "-rn", "sh", SCRIPT, folder, str(hosts), "none", bench,
                               str(ranks // hosts), str(threads), "tcp"], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        said = []
        for k in range(hosts):
            with open(f"{folder}/host{k}.err", encoding="utf-8") as f:
                errors = f.read().strip()
            if errors:
                print(f"host {k}: {errors.splitlines()[0]}", file=sys.stderr)
            with open(f"{folder}/host{k}.out", encoding="utf-8") as f:
                said += [line.split(maxsplit=7) for line in f]
    return said


def table_row(ranks, threads, said):
    of = {kind: [[int(x) for x in s[1:7]] + s[7:] for s in said if s[0] == kind] for kind in
          ("rank", "process", "host", "killed")}
    rank, process, host = of["rank"], of["process"], of["host"]
    if len(rank) != ranks - 1 or not of["killed"]:
        return f"{ranks:6d} failed: {len(rank)} of {ranks - 1} ranks came to the end"
    hosts = min(ranks, HOSTS)
    lost = (hosts // 2 + 1) * (ranks // hosts) - 1
    killed = of["killed"][0][0]
    named = sum(f"rank {lost} " in r[6] for r in rank)
    sent = [sum(h[i] for h in host) for i in (1, 2, 3)]
    for words, count in collections.Counter(r[6] for r in rank if f"rank {lost} " not in r[6]).most_common(3):
        print(f"{count} ranks: {words}", file=sys.stderr)
    return COLUMNS % (
        ranks, f"{len(process)} processes"[:12], "%.2f" % ((max(r[2] for r in rank) - min(r[1] for r in rank)) / 1e9),
        "%.1f" % (sum(p[3] for p in process) / ranks), "%.0f" % max(p[3] / p[1] for p in process),
        "%.1f" % (sum(p[2] for p in process) / ranks / 1e6), sent[0], "%.2f" % (rank[0][3] / 1e6),
        "%.0f" % (sent[1] / 20), "%.2f" % (rank[0][4] / 1e6), "%.0f" % (sent[2] / 20),
        "%.2f" % ((max(r[5] for r in rank) - killed) / 1e9), f"{named} of {ranks - 1} name rank {lost}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(COLUMNS % ("ranks", "as", "open", "streams", "most", "MB", "rest/s", "barrier", "segments", "sum", "segments",
                     "known", ""))
    for text in sys.argv[2:] or ["2", "8", "32", "128", "256", "512x16", "1024x16"]:
        ranks, threads = (int(x) for x in (text + "x1").split("x")[:2])
        print(table_row(ranks, threads, measure(os.path.abspath(sys.argv[1]), ranks, threads)), flush=True)


if __name__ == "__main__":
    main()
