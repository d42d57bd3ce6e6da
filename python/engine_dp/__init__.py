"""The engine from Python: ranks that exchange and add arrays, and runs, comparisons and reports.

    import engine_dp, numpy
    with engine_dp.Group() as group:                  # started by: engine launch -n 4 python script.py
        total = group.all_reduce(numpy.ones(1000, "f4"))

    run = engine_dp.run("config.yaml", mode="ddp", devices="cpu:2")
    print(run.summary["val"]["accuracy"], run.steps["loss"][-1])
"""

from ._library import EngineError, version
from .commands import compare, dashboard, report, run, runs, start, validate
from .group import Group, Work
from .runs import Comparison, Run, Runs

__all__ = [
    "Comparison", "EngineError", "Group", "Run", "Runs", "Work", "compare", "dashboard", "report", "run", "runs", "start",
    "validate", "version",
]
__version__ = version()
