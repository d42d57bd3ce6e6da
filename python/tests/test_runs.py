"""Runs, experiments and their results, read back and compared with their files."""

import contextlib
import io
import json
import math
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np

import engine_dp

DATA = {"set": "digits", "train": 200, "val": 50}
SMALL = {"data": DATA, "model": {"layers": ["flatten", {"linear": 10}]}, "threads": 1, "batch": 32}


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.before = os.getcwd()
        os.chdir(self.folder.name)

    def tearDown(self):
        os.chdir(self.before)
        self.folder.cleanup()

    def test_a_run(self):
        run = engine_dp.run(mode="single", devices="cpu:1", train="2ep", log__dir="one", set={"optimizer.lr": 0.1},
                            **SMALL)
        self.assertEqual(run.path, pathlib.Path("one"))
        self.assertEqual(run.summary["steps"], 14)
        lines = [json.loads(l) for l in pathlib.Path("one/metrics.jsonl").read_text().splitlines()]
        steps = [l for l in lines if "loss" in l]
        np.testing.assert_array_equal(run.steps["loss"], [s["loss"] for s in steps])
        np.testing.assert_array_equal(run.steps["phase_ms.forward"], [s["phase_ms"]["forward"] for s in steps])
        np.testing.assert_array_equal(run.steps["step"], range(1, 15))
        self.assertEqual(run.steps["step"].dtype.kind, "i")
        self.assertEqual(run.steps["lr"][0], 0.1)
        np.testing.assert_array_equal(run.validation["step"], [7, 14])
        self.assertEqual(run.validation["accuracy"][-1], run.summary["val"]["accuracy"])
        self.assertEqual([e["event"] for e in run.events], ["started", "finished"])
        self.assertIn("lr: 0.1", run.config)
        again = engine_dp.Run("one")
        self.assertEqual(again.summary["weights_sha256"], run.summary["weights_sha256"])
        listed = engine_dp.runs(".")
        self.assertEqual([(r["path"], r["val_accuracy"]) for r in listed],
                         [(pathlib.Path("one"), run.summary["val"]["accuracy"])])
        page = engine_dp.report(run)
        self.assertTrue(page.read_text().startswith("<!DOCTYPE html>"))

    def test_values_of_other_kinds(self):
        """Paths, with characters that YAML would take for its own, and numpy's numbers and arrays."""
        run = engine_dp.run(**{**SMALL, "model": {"zoo": "mlp", "hidden": np.array([8, 4])}}, seed=np.int64(3),
                            train="1st", log__dir=pathlib.Path("a [new] {one}: #1"))
        self.assertEqual(run.path, pathlib.Path("a [new] {one}: #1"))
        self.assertIn("seed: 3", run.config)
        with self.assertRaises(TypeError):
            engine_dp.run(seed={1, 2}, **SMALL)

    def test_a_run_in_progress(self):
        run = engine_dp.start(mode="single", devices="cpu:1", train="1000000st", log__dir="one", **SMALL)
        self.assertEqual((run.path, run.running), (pathlib.Path("one"), True))
        while not run.refresh().steps:
            time.sleep(0.01)
        self.assertEqual([r["state"] for r in engine_dp.runs(".")], ["running"])
        with self.assertRaises(subprocess.TimeoutExpired):
            run.wait(0.01)
        self.assertIs(run.stop(), run)
        self.assertFalse(run.running)
        self.assertEqual(run.summary["ended"], "stopped")
        self.assertEqual(len(run.steps["loss"]), run.summary["steps"])
        self.assertIn(f"step-{run.summary['steps']:09}", os.listdir("one/ckpt"))
        self.assertIn("<svg", run._repr_html_())
        self.assertIn("<td>stopped</td>", engine_dp.runs(".")._repr_html_())
        with self.assertRaises(engine_dp.EngineError):
            engine_dp.start(modl=1)

    def test_an_interrupt_saves(self):
        """As a notebook's stop button gives it: to this process alone."""
        def interrupt():
            while not list(pathlib.Path().glob("one/metrics.jsonl")):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        run = engine_dp.run(mode="single", devices="cpu:1", train="1000000st", log__dir="one", **SMALL)
        self.assertEqual(run.summary["ended"], "stopped")
        self.assertIn(f"step-{run.summary['steps']:09}", os.listdir("one/ckpt"))

    def test_progress_is_shown(self):
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            engine_dp.run(mode="single", devices="cpu:1", train="3st", log__dir="one", verbose=True, **SMALL)
        self.assertIn("step=3/3", shown.getvalue())

    def test_what_is_wrong_is_raised(self):
        for call, words, code in ((lambda: engine_dp.run(modl=1), "unknown key 'modl'", 78),
                                  (lambda: engine_dp.validate("no.yaml"), "no.yaml", 66),
                                  (lambda: engine_dp.Run("nowhere"), "nowhere", 66),
                                  (lambda: engine_dp.compare("no.yaml"), "no.yaml", 66),
                                  (lambda: engine_dp.runs("nowhere"), "nowhere", 66)):
            with self.assertRaises(engine_dp.EngineError) as caught:
                call()
            self.assertIn(words, caught.exception.message)
            self.assertEqual(caught.exception.code, code)
        os.mkdir("empty")
        with self.assertRaises(engine_dp.EngineError):
            engine_dp.Run("empty").summary

    def test_a_comparison(self):
        pathlib.Path("base.yaml").write_text(json.dumps({
            **SMALL, "train": "20st", "eval": "off", "devices": "cpu:1", "mode": "single"}))
        pathlib.Path("x.yaml").write_text(json.dumps({
            "base": "base.yaml", "sides": {"one": {"optimizer.lr": 0.1}, "other": {"optimizer.lr": 0.2}},
            "repeats": {"seeds": 6}, "metrics": ["train_loss", "step_time"], "warmup": "2st"}))
        result = engine_dp.compare("x.yaml", dir="out")
        self.assertEqual(result.verdict, result.results["verdict"])
        loss, time = result.verdicts
        self.assertEqual((loss["side"], loss["against"], loss["metric"], loss["samples_a"]),
                         ("other", "one", "train_loss", 6))
        runs = result.runs("one"), result.runs("other")
        ratios = [a.summary["train"]["loss"] / b.summary["train"]["loss"] for a, b in zip(*runs)]
        self.assertTrue(min(ratios) <= loss["estimate"] <= max(ratios))
        self.assertTrue(math.isfinite(time["estimate"]))
        with self.assertRaises(KeyError):
            result.runs("neither")

    def test_frames(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not installed")
        run = engine_dp.run(mode="single", devices="cpu:1", train="2ep", log__dir="one", **SMALL)
        frame = run.frame()
        self.assertEqual(len(frame), 14)
        self.assertEqual(frame["val.accuracy"].notna().sum(), 2)
        listed = engine_dp.runs(".").frame()
        self.assertEqual((listed["name"].tolist(), listed["tags"].tolist()), (["one"], [[]]))


if __name__ == "__main__":
    unittest.main()
