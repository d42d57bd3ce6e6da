"""The commands of the program, with Python objects for results. A command that fails raises an EngineError with its
message and its exit code."""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Deque, Dict, List, Optional, Sequence, Union

from ._library import EngineError, program
from .runs import Comparison, PathLike, Run, Runs

_STOPPED = (130, 143)  # exit codes of a run that was asked to stop, after it has saved


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class _Program:
    """The program at work. What it prints on standard error is kept, and if 'shown', shown as it comes: in a notebook
    below the cell."""

    def __init__(self, arguments: Sequence[Any], shown: bool):
        self.name = arguments[0]
        words = [program(), *(os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in arguments)]
        self._output = tempfile.TemporaryFile()
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.PIPE,
                                         text=True, errors="replace")
        self._printed: Optional[str] = None  # on standard output, once it has ended
        self._lines: Deque[str] = collections.deque(maxlen=1000)
        self.run: Optional[str] = None  # the folder of the run, once it is known
        self.known = threading.Event()  # that, or that the program has ended
        self._stream = (sys.stdout if _in_notebook() else sys.stderr) if shown else None
        self._reader = threading.Thread(target=self._read, daemon=True, name="engine output")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as printed:
            for line in printed:
                self._lines.append(line)
                if self.run is None and line.startswith("run "):
                    self.run = line[4:].rstrip("\n")
                    self.known.set()
                if self._stream:
                    self._stream.write(line)
                    self._stream.flush()
        self.known.set()

    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Asks it to save and to end. A terminal has sent its SIGINT to the program, too, and a second one would end it
        at once."""
        self._process.terminate()

    def wait(self, timeout: Optional[float] = None) -> int:
        """Gives the exit code. The first interrupt asks the program to end, and waits on."""
        try:
            self._process.wait(timeout)
        except KeyboardInterrupt:
            self.stop()
            try:
                self._process.wait()
            except KeyboardInterrupt:
                self._process.send_signal(signal.SIGINT)  # ends it at once, with its ranks
                raise
        self._reader.join()
        if self._printed is None:
            with self._output:
                self._output.seek(0)
                self._printed = self._output.read().decode(errors="replace")
        return self._process.returncode

    def output(self, codes: Sequence[int] = (0,)) -> str:
        """Its standard output, after it has ended with one of these exit codes; others are raised."""
        if self._process.returncode in codes:
            return self._printed or ""
        lines = list(self._lines)
        first = next((i for i, line in enumerate(lines) if "error: " in line), 0)
        printed = "".join(lines[first:]).strip()
        printed = printed or f"engine {self.name} ended with exit code {self._process.returncode}"
        message, _, hint = printed.partition("\nhint: ")
        raise EngineError(message.replace("error: ", "", 1), hint, self._process.returncode)


def _call(arguments: Sequence[Any], codes: Sequence[int] = (0,), shown: bool = False) -> str:
    """Runs the program and gives its standard output."""
    called = _Program(arguments, shown)
    if called.wait() in _STOPPED:
        raise KeyboardInterrupt
    return called.output(codes)


def _plain(value: Any) -> Any:
    """A path, or a number or an array of numpy's, as what JSON knows."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not hasattr(value, "tolist"):
        raise TypeError(f"a {type(value).__name__} is no value of a configuration")
    return value.tolist()


def _text(value: Any) -> str:
    """A value as YAML, of which JSON is a part."""
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _sets(settings: Dict[str, Any]) -> List[str]:
    """Settings by keyword; two underscores stand for a dot: optimizer__lr=0.1 is optimizer.lr."""
    words: List[str] = []
    for key, value in settings.items():
        words += ["--set", f"{key.replace('__', '.')}={_text(value)}"]
    return words


def start(config: Optional[PathLike] = None, *, set: Optional[Dict[str, Any]] = None, verbose: Optional[bool] = None,
          resume: bool = False, **settings: Any) -> Run:
    """Begins to train, and gives the run while it is in progress: wait(), stop(), refresh(). It has run()'s settings."""
    words: List[Any] = ["run"] + ([config] if config is not None else [])
    words += _sets({**(set or {}), **settings}) + ["--json"] + (["--resume"] if resume else [])
    begun = _Program(words, _in_notebook() if verbose is None else verbose)
    try:
        begun.known.wait()
    except KeyboardInterrupt:
        begun.stop()
        begun.wait()
        if begun.run is None:
            raise
    if begun.run is None:  # it has failed, or found nothing to do
        begun.wait()
        return Run(json.loads(begun.output())["run_dir"])
    made = Run(begun.run)
    made._program = begun
    return made


def run(config: Optional[PathLike] = None, *, set: Optional[Dict[str, Any]] = None, verbose: Optional[bool] = None,
        resume: bool = False, **settings: Any) -> Run:
    """Trains, as 'engine run'. config: a file, a run's folder, or None for the defaults. Settings are keys of the
    configuration: mode="ddp", devices="cpu:2", train="3ep", optimizer__lr=0.1; set={"optimizer.lr": 0.1} is the same.
    verbose: its progress is shown, as it is in a notebook unless verbose is False. An interrupt (Ctrl-C, a notebook's
    stop button) ends the training: it saves, and the run is returned."""
    return start(config, set=set, verbose=verbose, resume=resume, **settings).wait()


def validate(config: Optional[PathLike] = None, **settings: Any) -> None:
    """Raises an EngineError if something is wrong with a configuration, its data or its model."""
    _call(["config", "--check"] + ([config] if config is not None else []) + _sets(settings))


def compare(*what: PathLike, dir: Optional[PathLike] = None, repeats: Optional[Union[int, str]] = None,
            verbose: bool = False, options: Sequence[str] = ()) -> Comparison:
    """Makes an experiment (a YAML file), or compares finished runs, as 'engine compare'. options: its other options, as
    in ["--modes", "dp,ddp"]. A gate that fails is not an error here: see results["gates"]."""
    words: List[Any] = ["compare", *what, *options, "--json"]
    words += ["--dir", dir] if dir is not None else []
    words += ["--repeats", repeats] if repeats is not None else []
    words += [] if verbose else ["--quiet"]
    results = json.loads(_call(words, codes=(0, 1), shown=verbose))
    return Comparison(dir if dir is not None else pathlib.Path("runs") / results["name"])


def report(what: Union[PathLike, Run, Comparison], output: Optional[PathLike] = None) -> pathlib.Path:
    """Writes the page of a run or an experiment; gives its path. The ending of output decides the format: .html, .md,
    .svg, .txt."""
    folder = what.path if isinstance(what, (Run, Comparison)) else pathlib.Path(what)
    path = pathlib.Path(output) if output is not None else folder / "report.html"
    _call(["report", folder, "-o", path])
    return path


def runs(folder: PathLike = "runs") -> Runs:
    """All runs below a folder, with what 'engine runs' lists of each: run["state"], run["val_accuracy"], ..."""
    listed = json.loads(_call(["runs", folder, "--json", "--all"]))["runs"]
    return Runs(Run(pathlib.Path(folder) / r["name"], r) for r in listed)


def dashboard(folder: PathLike = "runs", address: str = "0") -> "subprocess.Popen[bytes]":
    """Starts the dashboard of a run or a folder of runs, beside this program; end it with .terminate()."""
    return subprocess.Popen([program(), "dashboard", os.fspath(folder), "--at", address])


def main() -> None:
    """The command 'engine' of an installed package: the program takes this process's place."""
    words = [program(), *sys.argv[1:]]
    os.execv(words[0], words)
