#!/usr/bin/env python3
"""What TensorBoard's own reader finds in the events of a run, beside metrics.jsonl: check_events.py RUN_DIR

Scalars by step must be those of metrics.jsonl (as floats of 32 bits, which is what TensorBoard keeps), where a step that
came again after a resume counts as it was the last time; the configuration must be there as a text.
"""
import glob
import json
import os
import struct
import sys

from tensorboard import version
from tensorboard.backend.event_processing import event_accumulator, event_file_loader
from tensorboard.util import tensor_util

PHASES = ("load", "forward", "backward", "comm", "update")


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def told(run):
    """{tag: {step: value}} by metrics.jsonl."""
    tags = {}

    def put(tag, step, value):
        if value is not None:
            tags.setdefault(tag, {})[step] = value

    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            step = line["step"]
            if line.get("event") == "resumed":
                for steps in tags.values():
                    for later in [s for s in steps if s > step]:
                        del steps[later]
            for name in ("loss", "accuracy", "top5", "perplexity"):
                put("val/" + name, step, line.get("val", {}).get(name))
            if "ms" not in line:
                continue
            for name in ("loss", "accuracy", "lr"):
                put(name, step, line[name])
            put("grad_norm", step, line["grad_norm"] or None)
            put("step_ms", step, line["ms"])
            put("samples_per_s", step, line["samples"] / line["ms"] * 1e3)
            for name in ("cores", "rss_bytes", "watts"):
                put("system/" + name, step, line.get("system", {}).get(name))
            for phase in PHASES:
                put("phase_ms/" + phase, step, line["phase_ms"][phase])
    return tags


def near(tag, a, b):
    """Times have four digits behind the point in metrics.jsonl, other numbers six at least."""
    if tag == "loss" or tag.startswith("val/") or tag == "lr":
        return as_float(a) == b or abs(a - b) <= 1e-8 * abs(a)
    if tag.startswith("system/"):
        return abs(a - b) <= 6e-4 + 5e-6 * abs(a)
    return abs(a - b) <= 6e-5 + 5e-6 * abs(a) if tag != "samples_per_s" else abs(a - b) <= 1e-2 * abs(a)


def main():
    run = sys.argv[1]
    everything = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    events = event_accumulator.EventAccumulator(os.path.join(run, "tb"), size_guidance=everything)
    events.Reload()
    expected, wrong, count = told(run), [], 0
    if set(events.Tags()["scalars"]) != set(expected):
        wrong.append(f"scalars {events.Tags()['scalars']}, expected {sorted(expected)}")
    for tag in set(events.Tags()["scalars"]) & set(expected):
        steps = [e.step for e in events.Scalars(tag)]
        if steps != sorted(expected[tag]):
            wrong.append(f"{tag}: steps {steps[:5]}... ({len(steps)}), expected {len(expected[tag])}")
        wrong += [f"{tag} of step {e.step}: {e.value}, expected {expected[tag][e.step]}" for e in events.Scalars(tag)
                  if e.step in expected[tag] and not near(tag, expected[tag][e.step], e.value)]
        count += len(steps)
    texts = [e.tensor_proto.string_val[0].decode() for e in events.Tensors("config")]
    if not texts or "    optimizer:\n" not in texts[-1]:
        wrong.append(f"the configuration is not there: {texts}")
    plugins, files = {}, sorted(glob.glob(os.path.join(run, "tb", "*")))
    for path in files:  # as the program itself loads them, everything being a tensor
        for event in event_file_loader.EventFileLoader(path).Load():
            for value in event.summary.value:
                plugins.setdefault(value.metadata.plugin_data.plugin_name, set()).add(value.tag)
                tensor_util.make_ndarray(value.tensor)
    plugins.pop("", None)  # a tag's second value has none
    if set(plugins) != {"scalars", "text"} or plugins["scalars"] != set(expected) or plugins["text"] != {"config"}:
        wrong.append(f"plugins {plugins}")
    for line in wrong[:20]:
        print(line)
    print(f"TensorBoard {version.VERSION} reads {count} scalars of {len(expected)} tags and {len(texts)} texts from "
          f"{len(files)} files; wrong: {len(wrong)}")
    sys.exit(1 if wrong else 0)


main()
