"""The backend of torch.distributed is compared with gloo, if torch is installed."""

import importlib.util
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import tempfile
import unittest

from engine_dp._library import program

try:
    import torch  # noqa: F401
except ImportError:
    torch = None


def run_ranks(test, script, size, *words, **env):
    """Runs a script of this folder on 'size' ranks, which all must end well, and gives what they print."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size),
               pathlib.Path(__file__).with_name(script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **env})
    test.assertEqual(done.returncode, 0, done.stdout + done.stderr)
    return done.stdout


@unittest.skipIf(torch is None, "torch is not installed")
class Interfaces(unittest.TestCase):
    def test_private_ones_are_listed_and_there(self):
        import engine_dp.torch as ours
        for name in ours.PRIVATE:
            module, _, last = name.rpartition(".")
            if last != "_FR_SELF_RECORDING_BACKENDS":
                self.assertTrue(hasattr(pkgutil.resolve_name(module), last), name)
        helper = inspect.unwrap(torch.distributed.distributed_c10d._new_process_group_helper)
        self.assertIn("backend", helper.__code__.co_varnames)
        for source in pathlib.Path(ours.__file__).parent.glob("*.py"):
            for used in re.findall(r"\b(?:dist|torch)((?:\.\w+)*\._[a-z]\w*(?:\.\w+)*)", source.read_text(), re.I):
                if not used.startswith(".__"):
                    self.assertTrue(any(name.endswith(used) for name in ours.PRIVATE), f"{source}: {used}")

    @unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
    def test_types_of_a_users_program(self):
        root = str(pathlib.Path(__file__).parents[1])
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "user.py")
            script.write_text("import engine_dp\nfrom engine_dp.torch import ParameterServer, compress_hook, options, profile\n"
                              "hook, server = compress_hook('int8'), ParameterServer\n"
                              "with options(bandwidth=1e9), profile('x.json'), engine_dp.Group() as g:\n"
                              "    sent: int = g.statistics().sent\n"
                              "rows: int = len(engine_dp.start('c.yaml').wait().frame()) + len(engine_dp.runs())\n"
                              "engine_dp.dashboard().terminate()\n")
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", folder,
                                   script], capture_output=True, text=True, timeout=280, env={**os.environ, "MYPYPATH": root})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_no_import_is_needed(self):
        """Torch finds the backend by its entry point in the folder of an installed package."""
        project = (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text()
        point = re.search(r'\[project.entry-points."torch.backends"\]\n(.+)\n', project).group(1).replace('"', "")
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "engine_dp-0.dist-info")
            made.mkdir()
            (made / "METADATA").write_text("Metadata-Version: 2.1\nName: engine-dp\nVersion: 0\n")
            (made / "entry_points.txt").write_text(f"[torch.backends]\n{point}\n")
            script = ("import sys, torch.distributed as dist; assert 'engine_dp' not in sys.modules; "
                      "dist.init_process_group('engine', store=dist.HashStore(), rank=0, world_size=1); "
                      "dist.barrier(); dist.destroy_process_group()")
            paths = os.pathsep.join([folder, os.environ.get("PYTHONPATH", ""), str(pathlib.Path(__file__).parents[1])])
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280,
                                  env={**os.environ, "PYTHONPATH": paths})
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipIf(torch is None, "torch is not installed")
class Backend(unittest.TestCase):
    def test_two_ranks(self):
        run_ranks(self, "ranks_torch.py", 2, "gloo", "collectives", "sums", "sparse", "messages", "objects",
                  "data_parallel", "parts", "wrong")

    def test_three_ranks(self):
        run_ranks(self, "ranks_torch.py", 3, "gloo", "collectives", "messages", "objects", "data_parallel", "parts",
                  "wrong")

    def test_groups_that_come_and_go(self):
        run_ranks(self, "ranks_torch.py", 2, "engine", "again")
        run_ranks(self, "ranks_torch.py", 3, "gloo", "dies")

    def test_beside_other_backends(self):
        run_ranks(self, "ranks_torch.py", 2, "gloo", "beside")
        run_ranks(self, "ranks_torch.py", 3, "cpu:engine,cuda:gloo", "messages", "objects", "data_parallel")

    def test_script_of_gloo_alone_under_engine_launch(self):
        script = "import torch, torch.distributed as d; d.init_process_group('gloo'); t = torch.ones(3); " \
                 "d.all_reduce(t); assert t.tolist() == [2.0] * 3; d.destroy_process_group()"
        done = subprocess.run([program(), "launch", "-n", "2", sys.executable, "-c", script], capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_futures_and_hooks(self):
        printed = run_ranks(self, "ranks_hooks.py", 2, "futures", "hooks", "backward", "shared_memory", "split")
        self.assertNotRegex(printed, r"(?m)^(?!batched PowerSGD).*refuses")  # that one fails in torch 2.15 itself
        run_ranks(self, "ranks_hooks.py", 3, "futures", "backward", "split")

    def test_wrappers_that_choose_the_backend(self):
        for package in ("accelerate", "transformers", "lightning"):
            with self.subTest(package):
                if importlib.util.find_spec(package) is None:
                    self.skipTest(f"{package} is not installed")
                run_ranks(self, "ranks_wrappers.py", 2, package)

    def test_threads_end(self):
        """The threads of a group end with it. nng starts its own once, with the first group's store, and keeps them."""
        run_ranks(self, "ranks_hooks.py", 2, "threads")

    def test_profile(self):
        for world in ("engine", "cpu:engine,cuda:gloo"):
            with self.subTest(world=world), tempfile.TemporaryDirectory() as folder:
                run_ranks(self, "ranks_profile.py", 2, world, folder)


if __name__ == "__main__":
    unittest.main()
