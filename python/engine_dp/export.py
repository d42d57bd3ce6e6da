"""Runs for the tools of others, written by these tools' own libraries, without a network and without an account:

    python -m engine_dp.export wandb runs          # wandb/offline-run-...: 'wandb sync wandb/offline-run-*' sends them
    python -m engine_dp.export mlflow runs/mlp-3   # mlflow.db: 'mlflow ui --backend-store-uri sqlite:///mlflow.db'

Each run has its settings, the numbers of each step and each validation, its summary, note and tags."""

import argparse
import datetime
import importlib
import json
import math
import pathlib
import sys
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple, Union

from ._library import EngineError
from .commands import runs as runs_below
from .runs import PathLike, Run, _flat

_ENDED = {"finished": "FINISHED", "running": "RUNNING", "stopped": "KILLED"}  # states of others are FAILED


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise EngineError(f"the Python module {name} is not installed", f"pip install {name.split('.')[0]}", 69) from None


def _scalar(text: Any) -> Any:
    """A setting as a number or a truth, where it is one in the engine's YAML, which is not that of YAML 1.1."""
    if isinstance(text, list):
        return [_scalar(t) for t in text]
    if isinstance(text, dict):
        return {k: _scalar(v) for k, v in text.items()}
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)


def _settings(run: Run) -> Dict[str, Any]:
    """resolved.yaml by its keys: "optimizer.lr". Both libraries bring the module that reads YAML."""
    yaml = _library("yaml")
    return {k: _scalar(v) for k, v in _flat(yaml.load(run.config, yaml.BaseLoader)).items()}


def _numbers(record: Dict[str, Any]) -> Dict[str, float]:
    """The numbers of a record by their keys, without those that do not exist."""
    return {k: float(v) for k, v in _flat(record).items() if isinstance(v, (int, float)) and math.isfinite(v)}


def _measured(run: Run) -> Iterator[Tuple[int, float, Dict[str, float]]]:
    """Each step in order: its number, the seconds that all steps had taken when it ended, and what was measured of it,
    "val.loss" with it."""
    rows: Dict[int, Dict[str, float]] = {}
    for record in run._valid:
        if "event" not in record:
            rows.setdefault(record["step"], {}).update(_numbers(record))
    seconds = 0.0
    for step in sorted(rows):
        seconds += rows[step].get("ms", 0.0) / 1000
        yield step, seconds, {k: v for k, v in rows[step].items() if k != "step"}


def _summary(run: Run) -> Dict[str, Any]:
    """summary.json by its keys, lists of ranks included; nothing of a run that has not ended."""
    return _flat(run.summary) if (run.path / "summary.json").exists() else {}


def _began(run: Run) -> float:
    """When it was started last, in seconds since 1970."""
    when = str(run["when"])
    return datetime.datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()


def _name(run: Run) -> str:
    return run.path.resolve().name if run["name"] == "." else str(run["name"])


def _to_wandb(runs: Sequence[Run], folder: pathlib.Path, project: str) -> None:
    wandb = _library("wandb")
    for run in runs:
        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True,
                               disable_code=True, x_save_requirements=False)  # this process is not the run's
        to = wandb.init(mode="offline", dir=str(folder), project=project, id=run["run_id"], name=_name(run),
                        tags=run["tags"], notes=run["note"] or "", config=_settings(run), settings=quiet)
        began = _began(run)
        for step, seconds, numbers in _measured(run):
            to.log({**numbers, "train_s": seconds, "_timestamp": began + seconds}, step=step)
        to.summary.update(_summary(run))
        to.finish(exit_code=0 if run["state"] in ("finished", "stopped") else 1)
    wandb.teardown()  # another process of theirs writes the files


def _to_mlflow(runs: Sequence[Run], folder: pathlib.Path, project: str) -> None:
    _library("mlflow")
    entities, tracking = _library("mlflow.entities"), _library("mlflow.tracking")
    folder = folder.absolute()
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    known = client.get_experiment_by_name(project)
    experiment = known.experiment_id if known else client.create_experiment(project, (folder / "mlruns").as_uri())
    for run in runs:
        began = _began(run)
        at = began
        tags = {"mlflow.note.content": run["note"] or "", "run_id": run["run_id"] or "", **{t: "" for t in run["tags"]}}
        to = client.create_run(experiment, start_time=int(began * 1000), run_name=_name(run), tags=tags).info.run_id
        params = [entities.Param(k, v if isinstance(v, str) else json.dumps(v)) for k, v in _settings(run).items()]
        for i in range(0, len(params), 100):  # as many as a call takes
            client.log_batch(to, params=params[i:i + 100])
        metrics: List[Any] = []
        for step, seconds, numbers in _measured(run):
            at = began + seconds
            metrics += [entities.Metric(k, v, int(at * 1000), step) for k, v in {**numbers, "train_s": seconds}.items()]
        for i in range(0, len(metrics), 1000):
            client.log_batch(to, metrics=metrics[i:i + 1000])
        client.log_text(to, run.config, "resolved.yaml")
        if _summary(run):
            client.log_text(to, json.dumps(run.summary), "summary.json")
        client.set_terminated(to, _ENDED.get(run["state"], "FAILED"), end_time=int(at * 1000))


_TOOLS: Dict[str, Callable[[Sequence[Run], pathlib.Path, str], None]] = {"wandb": _to_wandb, "mlflow": _to_mlflow}


def export(tool: str, *what: Union[PathLike, Run], to: PathLike = ".", project: str = "engine") -> List[Run]:
    """Writes runs, and all runs below folders, for "wandb" or "mlflow" into the folder 'to'; gives these runs."""
    found: List[Run] = []
    for one in what:
        found += runs_below(one.path if isinstance(one, Run) else one)
    if tool not in _TOOLS:
        raise EngineError(f"no tool '{tool}'", f"one of {', '.join(_TOOLS)}", 64)
    if not found:
        raise EngineError("no run is there", "name the folders of runs, or a folder that holds some", 66)
    _TOOLS[tool](found, pathlib.Path(to), project)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m engine_dp.export", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=list(_TOOLS))
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or a folder of runs")
    parser.add_argument("--to", default=".", metavar="FOLDER", help="where the tool's folder is made")
    parser.add_argument("--project", default="engine", metavar="NAME", help="its project, or experiment")
    options = parser.parse_args()
    try:
        found = export(options.tool, *options.runs, to=options.to, project=options.project)
    except EngineError as e:
        print(f"error: {e.message}" + (f"\nhint: {e.hint}" if e.hint else ""), file=sys.stderr)
        return e.code
    print(f"wrote {len(found)} run{'s' if len(found) > 1 else ''} for {options.tool}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
