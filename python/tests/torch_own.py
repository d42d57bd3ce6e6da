"""The tests of torch.distributed that PyTorch's wheel carries, by the backend in BACKEND (gloo, engine):

    BACKEND=engine WORLD_SIZE=2 TEMP_DIR=/tmp/own python torch_own.py [TEST...]

Those that ask for a backend by name take 'engine' for gloo. One line a test: passed, failed or skipped, and why."""

import os
import sys
import unittest
import unittest.mock

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
for key, value in (("BACKEND", "engine"), ("WORLD_SIZE", "2"), ("TEMP_DIR", "/tmp/torch-own"), ("INIT_METHOD", "")):
    os.environ.setdefault(key, value)
if os.environ["INIT_METHOD"] == "":
    os.environ["INIT_METHOD"] = f"file://{os.environ['TEMP_DIR']}/shared_init_file"
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(f"{os.environ['TEMP_DIR']}/{folder}", exist_ok=True)

import engine_dp.torch  # noqa: E402,F401
from torch.testing._internal import common_distributed  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

features = common_distributed.DistTestCases
for name, backends in features.backend_feature.items():
    if "gloo" in backends:
        backends.add("engine")
for name, backends in features.skip_collective.items():
    if "gloo" in backends:
        backends.add("engine")


class Own(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


class Line(unittest.TextTestResult):
    def told(self, test, what, why=""):
        print(what, test._testMethodName, why.strip().splitlines()[-1][:150] if why.strip() else "", flush=True)

    def addSuccess(self, test):
        self.told(test, "passed")

    def addSkip(self, test, reason):
        self.told(test, "skipped", reason)

    def addFailure(self, test, err):
        self.told(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure


if __name__ == "__main__":
    names = sys.argv[1:] or unittest.TestLoader().getTestCaseNames(Own)
    suite = unittest.TestSuite(Own(name) for name in names)
    unittest.TextTestRunner(stream=sys.stderr, resultclass=Line, verbosity=0).run(suite)
