"""Runs as W&B and MLflow have them afterwards, by their own readers where they are installed, beside the run's files."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import engine_dp
from engine_dp import export

SMALL = {"data": {"set": "digits", "train": 200, "val": 50}, "model": {"layers": ["flatten", {"linear": 10}]},
         "threads": 1, "batch": 32, "mode": "single", "devices": "cpu:1", "optimizer": {"name": "sgd", "lr": 5e-4}}


def told(path):
    """{step: {name: value}} by metrics.jsonl, read here anew: what a resume has made void is gone."""
    rows = {}
    for line in map(json.loads, (path / "metrics.jsonl").read_text().splitlines()):
        if line.get("event") == "resumed":
            rows = {step: row for step, row in rows.items() if step <= line["step"]}
        if "event" in line:
            continue
        row = rows.setdefault(line["step"], {})
        for key, value in line.items():
            inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
            row.update({k: v for k, v in inner.items() if v is not None and k != "step"})
    return rows


def wandb_records(path, kind):
    """A file of W&B is a log as LevelDB's, of blocks of 32 KB, after seven bytes; a piece has a head of seven bytes: crc,
    length, and whether it is whole (1) or first (2), middle (3) and last (4)."""
    data, at, record = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B", path
    while at + 7 <= len(data):
        if at % 32768 > 32768 - 7:
            at += 32768 - at % 32768
            continue
        length, piece = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
        record = (b"" if piece in (1, 2) else record) + data[at + 7:at + 7 + length]
        at += 7 + length
        if piece in (1, 4):
            yield kind.FromString(record)


class Export(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.before = os.getcwd()
        os.chdir(self.folder.name)
        warnings.simplefilter("ignore")  # theirs

    def tearDown(self):
        os.chdir(self.before)
        self.folder.cleanup()

    def make_runs(self):
        """One, and one of which steps were made twice: it has gone on from an earlier checkpoint than its last step's."""
        engine_dp.run(train="2ep", log__dir="runs/one", **SMALL)
        engine_dp.run(train="12st", checkpoint="4st", eval="3st", log__dir="runs/two", **SMALL)
        shutil.rmtree("runs/two/ckpt/step-000000012")
        engine_dp.run("runs/two", train="10st")
        program = engine_dp.commands.program()
        subprocess.run([program, "runs", "--note", "half rate", "runs/one"], check=True, capture_output=True)
        subprocess.run([program, "runs", "--tag", "baseline", "runs/one"], check=True, capture_output=True)
        return [engine_dp.Run("runs/one"), engine_dp.Run("runs/two")]

    def test_steps_of_a_run_that_was_resumed_come_once(self):
        _, two = self.make_runs()
        rows = told(two.path)
        self.assertEqual(list(two.steps["step"]), list(range(1, 11)))
        self.assertEqual(list(two.validation["step"]), [3, 6, 9, 10])
        seconds = 0.0
        for step, at, numbers in export._measured(two):
            seconds += rows[step]["ms"] / 1000
            self.assertEqual(numbers, rows[step])
            self.assertAlmostEqual(at, seconds)
        self.assertEqual(step, 10)

    def test_settings_are_read_as_the_engine_reads_them(self):
        for text, value in (("5e-4", 5e-4), ("1", 1), ("off", "off"), ("true", True), ("no", "no"), ("1:30", "1:30"),
                            ("cpu:2", "cpu:2"), (["1", "2.5"], [1, 2.5]), ({"a": "false"}, {"a": False})):
            self.assertEqual(export._scalar(text), value)

    def test_what_is_missing_is_named(self):
        engine_dp.run(train="3st", log__dir="runs/one", **SMALL)
        for tool in ("wandb", "mlflow"):
            with mock.patch.dict(sys.modules, {tool: None}), self.assertRaises(engine_dp.EngineError) as caught:
                export.export(tool, "runs")
            self.assertEqual((caught.exception.code, caught.exception.hint), (69, f"pip install {tool}"))
        with self.assertRaises(engine_dp.EngineError) as caught:
            export.export("excel", "runs")
        self.assertEqual(caught.exception.code, 64)
        os.mkdir("empty")
        said = subprocess.run([sys.executable, "-m", "engine_dp.export", "wandb", "empty"], capture_output=True, text=True)
        self.assertEqual((said.returncode, said.stderr), (66, "error: no run is there\nhint: name the folders of runs, or "
                                                              "a folder that holds some\n"))

    def test_mlflow_reads_them(self):
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            self.skipTest("mlflow is not installed")
        runs = self.make_runs()
        self.assertEqual(len(export.export("mlflow", "runs", to="there", project="mine")), 2)
        client = MlflowClient(tracking_uri=f"sqlite:///{os.getcwd()}/there/mlflow.db")
        found = {r.info.run_name: r for r in client.search_runs([client.get_experiment_by_name("mine").experiment_id])}
        self.assertEqual(set(found), {"one", "two"})
        for run in runs:
            got, rows, seen = found[run.path.name], told(run.path), {}
            for name in got.data.metrics:
                for m in client.get_metric_history(got.info.run_id, name):
                    seen.setdefault(m.step, {})[name] = m.value
            times = {step: row.pop("train_s") for step, row in seen.items()}
            self.assertEqual(seen, rows)
            self.assertAlmostEqual(times[max(times)], sum(r["ms"] for r in rows.values()) / 1000)
            self.assertEqual(got.data.params["optimizer.lr"], "0.0005")
            self.assertEqual(got.data.params["mode"], "single")
            self.assertEqual(json.loads(got.data.params["model.layers"])[0], "flatten")
            self.assertEqual(len(got.data.params), len(export._settings(run)))
            self.assertEqual((got.info.status, got.data.tags["run_id"]), ("FINISHED", run.summary["run_id"]))
            with tempfile.TemporaryDirectory() as place:
                path = client.download_artifacts(got.info.run_id, "resolved.yaml", place)
                self.assertEqual(pathlib.Path(path).read_text(), run.config)
        self.assertEqual(found["one"].data.tags["mlflow.note.content"], "half rate")
        self.assertIn("baseline", found["one"].data.tags)

    def test_wandb_reads_them(self):
        try:
            import wandb  # noqa: F401
            from wandb.proto.wandb_internal_pb2 import Record
        except ImportError:
            self.skipTest("wandb is not installed")
        runs = {r.summary["run_id"]: r for r in self.make_runs()}
        export.export("wandb", "runs", to="there", project="mine")
        files = sorted(pathlib.Path("there/wandb").glob("offline-run-*/*.wandb"))
        self.assertEqual(len(files), 2)
        for path in files:
            seen, config, summary, made = {}, {}, {}, None
            for record in wandb_records(path, Record):
                for item in record.history.item:
                    name, value = item.key or ".".join(item.nested_key), json.loads(item.value_json)
                    seen.setdefault(record.history.step.num, {})[name] = value
                for item in record.run.config.update:
                    config[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
                for item in record.summary.update:
                    summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
                made = record.run if record.HasField("run") else made
            run, began = runs[made.run_id], 0
            rows = told(run.path)
            for step, row in seen.items():
                began = began or row["_timestamp"] - row["train_s"]
                self.assertAlmostEqual(row["_timestamp"] - row["train_s"], began, places=3)
                self.assertEqual({k: v for k, v in row.items() if k[0] != "_" and k != "train_s"}, rows[step])
            self.assertEqual(set(seen), set(rows))
            self.assertEqual((made.project, made.display_name), ("mine", run.path.name))
            self.assertEqual((config["optimizer.lr"], config["mode"]), (5e-4, "single"))
            self.assertEqual(set(config) - {"_wandb"}, set(export._settings(run)))
            self.assertEqual(summary["weights_sha256"], run.summary["weights_sha256"])
            self.assertEqual(summary["val.accuracy"], run.summary["val"]["accuracy"])
            one = run.path.name == "one"
            self.assertEqual((list(made.tags), made.notes), (["baseline"], "half rate") if one else ([], ""))


if __name__ == "__main__":
    unittest.main()
