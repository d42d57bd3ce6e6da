"""The commands of the program, with Python objects for results. A command that fails raises an EngineError with its
message and its exit code."""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Dict, List, Optional, Sequence, Union

from ._library import EngineError, program
from .runs import Comparison, PathLike, Run


def _call(arguments: Sequence[Any], codes: Sequence[int] = (0,), output: bool = False) -> str:
    """Runs the program and gives its standard output. output: its standard error is shown."""
    words = [program(), *(os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in arguments)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=None if output else subprocess.PIPE, text=True, errors="replace", check=False)
    if done.returncode in codes:
        return done.stdout
    printed = (done.stderr or "").strip() or f"engine {arguments[0]} ended with exit code {done.returncode}"
    message, _, hint = printed.partition("\nhint: ")
    raise EngineError(message.replace("error: ", "", 1), hint, done.returncode)


def _text(value: Any) -> str:
    """A value as YAML, of which JSON is a part."""
    return value if isinstance(value, str) else json.dumps(value)


def _sets(settings: Dict[str, Any]) -> List[str]:
    """Settings by keyword; two underscores stand for a dot: optimizer__lr=0.1 is optimizer.lr."""
    words: List[str] = []
    for key, value in settings.items():
        words += ["--set", f"{key.replace('__', '.')}={_text(value)}"]
    return words


def run(config: Optional[PathLike] = None, *, set: Optional[Dict[str, Any]] = None, verbose: bool = False,
        resume: bool = False, **settings: Any) -> Run:
    """Trains, as 'engine run'. config: a file, a run's folder, or None for the defaults. Settings are keys of the
    configuration: mode="ddp", devices="cpu:2", train="3ep", optimizer__lr=0.1; set={"optimizer.lr": 0.1} is the same.
    verbose: its progress is shown."""
    words: List[Any] = ["run"] + ([config] if config is not None else [])
    words += _sets({**(set or {}), **settings}) + ["--json"]
    words += (["--resume"] if resume else []) + ([] if verbose else ["--quiet"])
    summary = json.loads(_call(words, output=verbose))
    made = Run(summary["run_dir"])
    made.__dict__["summary"] = summary
    return made


def validate(config: Optional[PathLike] = None, **settings: Any) -> None:
    """Raises an EngineError if something is wrong with a configuration, its data or its model."""
    _call(["validate"] + ([config] if config is not None else []) + _sets(settings))


def compare(*what: PathLike, dir: Optional[PathLike] = None, repeats: Optional[Union[int, str]] = None,
            verbose: bool = False, options: Sequence[str] = ()) -> Comparison:
    """Makes an experiment (a YAML file), or compares finished runs, as 'engine compare'. options: its other options, as
    in ["--modes", "dp,ddp"]. A gate that fails is not an error here: see results["gates"]."""
    words: List[Any] = ["compare", *what, *options, "--json"]
    words += ["--dir", dir] if dir is not None else []
    words += ["--repeats", repeats] if repeats is not None else []
    words += [] if verbose else ["--quiet"]
    results = json.loads(_call(words, codes=(0, 1), output=verbose))
    return Comparison(dir if dir is not None else pathlib.Path("runs") / results["name"])


def report(what: Union[PathLike, Run, Comparison], output: Optional[PathLike] = None) -> pathlib.Path:
    """Writes the page of a run or an experiment; gives its path. The ending of output decides the format: .html, .md,
    .csv, .json, .svg, .txt."""
    folder = what.path if isinstance(what, (Run, Comparison)) else pathlib.Path(what)
    path = pathlib.Path(output) if output is not None else folder / "report.html"
    _call(["report", folder, "-o", path])
    return path


def runs(folder: PathLike = "runs") -> List[Dict[str, Any]]:
    """All runs below a folder, as 'engine runs --json' lists them, each with its 'path'."""
    listed = json.loads(_call(["runs", folder, "--json", "--all"]))
    for r in listed["runs"]:
        r["path"] = pathlib.Path(folder) / r["name"]
    return listed["runs"]


def dashboard(folder: PathLike = "runs", address: str = "0") -> subprocess.Popen:
    """Starts the dashboard of a run or a folder of runs, beside this program; end it with .terminate()."""
    return subprocess.Popen([program(), "dashboard", os.fspath(folder), "--at", address])


def main() -> None:
    """The command 'engine' of an installed package: the program takes this process's place."""
    words = [program(), *sys.argv[1:]]
    os.execv(words[0], words)
