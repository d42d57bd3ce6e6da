"""The results that runs and experiments have left in their folders."""

import csv
import json
import math
import os
import pathlib
import subprocess
import tempfile
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

import numpy
import numpy.typing

from ._library import EngineError, program

if TYPE_CHECKING:
    import pandas

    from .commands import _Program

Columns = Dict[str, "numpy.typing.NDArray[Any]"]
PathLike = Union[str, "os.PathLike[str]"]


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        hint = "is this the folder of a run (or of an experiment) that has ended?"
        raise EngineError(f"no file {path}", hint, 66) from None
    except ValueError as e:
        raise EngineError(f"{path}: {e}", "", 65) from None


def _flat(record: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    """{"phase_ms": {"load": 1}} as {"phase_ms.load": 1}."""
    out: Dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out


def _columns(records: List[Dict[str, Any]]) -> Columns:
    """One array for each key: integers if all values are, else doubles with NaN for missing ones, else objects."""
    keys: Dict[str, None] = {}
    for r in records:
        keys.update(dict.fromkeys(r))
    columns: Columns = {}
    for key in keys:
        values = [r.get(key) for r in records]
        if all(type(v) is int for v in values):
            columns[key] = numpy.array(values, "i8")
        elif all(v is None or isinstance(v, (int, float)) for v in values):
            columns[key] = numpy.array([math.nan if v is None else v for v in values], "f8")
        else:
            columns[key] = numpy.empty(len(values), object)  # lists, as tags are, would become further dimensions
            for i, v in enumerate(values):
                columns[key][i] = v
    return columns


def _frame(columns: Columns) -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError:
        hint = "pip install pandas; steps and validation are arrays without it"
        raise EngineError("frames need pandas", hint, 69) from None
    return pandas.DataFrame(columns)


def _pictures(path: pathlib.Path, title: str) -> str:
    """A folder for a notebook: the plots that 'engine report' draws, once there is something to draw."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = pathlib.Path(folder) / "report.svg"
        done = subprocess.run([program(), "report", path, "-o", drawn], capture_output=True, check=False)
        return f"<p>{escape(title)}</p>" + (drawn.read_text() if done.returncode == 0 else "")


class Run:
    """A run's folder. Each file is read when it is first needed; refresh() forgets what was read."""

    def __init__(self, path: PathLike, listed: Optional[Dict[str, Any]] = None):
        self.path = pathlib.Path(path)
        self.listed = listed or {}  # what runs() has found
        self._program: Optional["_Program"] = None  # which start() has begun
        if not self.path.is_dir():
            raise EngineError(f"no folder {self.path}", "", 66)

    def __repr__(self) -> str:
        return f"<engine_dp.Run: {self.path}{', running' if self.running else ''}>"

    def _repr_html_(self) -> str:
        return _pictures(self.path, repr(self))

    def __getitem__(self, key: str) -> Any:
        """What runs() has listed: name, state, mode, devices, steps, loss, val_loss, val_accuracy, seconds, ..."""
        return self.path if key == "path" else self.listed[key]

    @property
    def running(self) -> bool:
        """Whether start() has begun this run and it still trains."""
        return self._program is not None and self._program.running()

    def refresh(self) -> "Run":
        """Forgets what was read: steps, validation, events and summary are read anew, as far as the run has come."""
        for name in ("summary", "_records", "_valid", "steps", "validation", "events"):
            self.__dict__.pop(name, None)
        return self

    def wait(self, timeout: Optional[float] = None) -> "Run":
        """Waits until a run that start() has begun has ended. What fails it raises an EngineError; a run that was asked
        to stop has saved. An interrupt asks it to stop. After 'timeout' seconds, subprocess.TimeoutExpired is raised."""
        if self._program is not None:
            self._program.wait(timeout)
            self._program.output((0, 130, 143))
        return self.refresh()

    def stop(self) -> "Run":
        """Ends a run that start() has begun: it saves a checkpoint after the step."""
        if self._program is not None and self._program.running():
            self._program.stop()
        return self.wait()

    @cached_property
    def summary(self) -> Dict[str, Any]:
        """summary.json: the run's results. Raises an EngineError until the run has ended."""
        return _read_json(self.path / "summary.json")

    @cached_property
    def _records(self) -> List[Dict[str, Any]]:
        path, records = self.path / "metrics.jsonl", []
        try:
            lines = path.read_text().splitlines()
        except FileNotFoundError:
            raise EngineError(f"no file {path}", "is this the folder of a run?", 66) from None
        for number, line in enumerate(lines, 1):
            try:
                records.append(json.loads(line))
            except ValueError as e:
                if number < len(lines):  # the last line may still be incomplete
                    raise EngineError(f"{path}:{number}: {e}", "", 65) from None
        return records

    @cached_property
    def _valid(self) -> List[Dict[str, Any]]:
        """The records without those that a resume has made void: the steps after its checkpoint come again."""
        valid: List[Dict[str, Any]] = []
        for r in self._records:
            if r.get("event") in ("started", "resumed"):
                valid = [v for v in valid if v["step"] <= r["step"]]
            valid.append(r)
        return valid

    @cached_property
    def steps(self) -> Columns:
        """One array for each column of metrics.jsonl: step, loss, accuracy, lr, ms, phase_ms.forward, ..."""
        return _columns([_flat(r) for r in self._valid if "loss" in r])

    @cached_property
    def validation(self) -> Columns:
        """One array for each column: step, loss, accuracy, ..."""
        return _columns([{"step": r["step"], **_flat(r["val"])} for r in self._valid if "val" in r])

    @cached_property
    def events(self) -> List[Dict[str, Any]]:
        """The run's events: started, resumed, devices, finished, ..."""
        return [r for r in self._records if "event" in r]

    def frame(self) -> "pandas.DataFrame":
        """The steps as a pandas frame; val.* columns hold the evaluations, in the row of the step that they follow."""
        frame = _frame(self.steps)
        if not self.validation:
            return frame
        val = _frame({k if k == "step" else f"val.{k}": v for k, v in self.validation.items()})
        return frame.merge(val.drop_duplicates("step", keep="last"), on="step", how="left")

    @property
    def config(self) -> str:
        """resolved.yaml: the whole configuration as text."""
        return (self.path / "resolved.yaml").read_text()


class Runs(List[Run]):
    """What runs() has found."""

    def frame(self) -> "pandas.DataFrame":
        """What is listed of each run, as a pandas frame."""
        return _frame(_columns([{**r.listed, "path": r.path} for r in self]))

    def _repr_html_(self) -> str:
        keys = ("name", "state", "mode", "devices", "steps", "loss", "val_loss", "val_accuracy", "seconds")
        rows = [[r.listed.get(k) for k in keys] for r in self]
        cells = ("".join(f"<td>{'' if v is None else escape(str(v))}</td>" for v in row) for row in (keys, *rows))
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


class Comparison:
    """An experiment's folder: results.json and verdicts.csv."""

    def __init__(self, path: PathLike):
        self.path = pathlib.Path(path)
        self.results: Dict[str, Any] = _read_json(self.path / "results.json")

    def __repr__(self) -> str:
        return f"<engine_dp.Comparison: {self.path}: {self.verdict}>"

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return str(self.results["verdict"])

    def _repr_html_(self) -> str:
        return _pictures(self.path, repr(self))

    @cached_property
    def verdicts(self) -> List[Dict[str, Any]]:
        """An entry for each pair of sides and metric: estimate, low, high, p, p_holm, verdict, power, needed, ..."""
        numbers = ("a", "b", "estimate", "low", "high", "p", "p_holm", "power")
        whole = ("samples_a", "samples_b", "needed")
        with open(self.path / "verdicts.csv", newline="") as f:
            rows = list(csv.DictReader(f))
        for row in rows:
            for key in row:
                if key in numbers:
                    row[key] = float(row[key]) if row[key] else math.nan
                elif key in whole:
                    row[key] = int(row[key]) if row[key] else None
        return rows

    def runs(self, label: str) -> List[Run]:
        """The runs of the cell with this label in results.json, as in 'ddp devices=cpu:2'."""
        cells = {c["label"]: c for c in self.results["cells"]}
        if label not in cells:
            raise KeyError(f"no cell '{label}': {', '.join(cells)}")
        return [Run(self.path / r["dir"]) for r in cells[label]["runs"]]

    def frame(self) -> "pandas.DataFrame":
        """The verdicts as a pandas frame."""
        return _frame(_columns(self.verdicts))
