"""Runs the tests of torch.distributed that PyTorch's wheel has, over the backend in OVER (gloo, engine):

    OVER=engine WORLD_SIZE=2 TEMP_DIR=/tmp/own python torch_own.py [TEST...]

Prints one line for each test: passed, failed or skipped, and why."""

import functools
import multiprocessing
import os
import shutil
import sys
import unittest
import unittest.mock

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
for key, value in (("OVER", "engine"), ("BACKEND", "gloo"), ("WORLD_SIZE", "2"), ("TEMP_DIR", "/tmp/torch-own")):
    os.environ.setdefault(key, value)
os.environ["INIT_METHOD"] = f"file://{os.environ['TEMP_DIR']}/init_dir/shared_init_file"


def clear_folders():
    """Each test takes new folders, but processes that are forked from one server know only the first ones."""
    for folder in ("barrier", "test_dir", "init_dir"):
        shutil.rmtree(f"{os.environ['TEMP_DIR']}/{folder}", ignore_errors=True)
        os.makedirs(f"{os.environ['TEMP_DIR']}/{folder}")


if __name__ == "__main__":
    clear_folders()

import engine_dp.torch  # noqa: E402,F401
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

distributed_test.initialize_temp_directories = clear_folders


def over_engine(make):
    """Many tests skip or assert by the word gloo, so they ask for gloo, and get groups of the engine instead."""

    @functools.wraps(make)
    def made(*arguments, **named):
        if named.get("backend", "gloo") == "gloo":
            named["backend"] = "engine"
        return make(*arguments, **named)

    return made


if os.environ["OVER"] == "engine":
    for module in (dist, dist.distributed_c10d):
        module.init_process_group, module.new_group = over_engine(dist.init_process_group), over_engine(dist.new_group)


class Own(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        # The server imports torch once for all tests.
        self._start_processes(torch.multiprocessing.get_context("forkserver").Process)


class Line(unittest.TextTestResult):
    def print_line(self, test, what, why=""):
        print(what, test._testMethodName, why.strip().splitlines()[-1][:150] if why.strip() else "", flush=True)

    def addSuccess(self, test):
        self.print_line(test, "passed")

    def addSkip(self, test, reason):
        self.print_line(test, "skipped", reason)

    def addFailure(self, test, err):
        self.print_line(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure


if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["engine_dp.torch", distributed_test.__name__])
    names = sys.argv[1:] or unittest.TestLoader().getTestCaseNames(Own)
    suite = unittest.TestSuite(Own(name) for name in names)
    unittest.TextTestRunner(stream=sys.stderr, resultclass=Line, verbosity=0).run(suite)
