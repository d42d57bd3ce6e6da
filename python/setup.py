"""Builds the package. The C library and the program come from ENGINE_BUILD, a build folder, if that is set; otherwise
they are built from this source tree. A package that has not been built looks for them when it is imported."""

import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent


def version():
    text = (SOURCE / "CMakeLists.txt").read_text()
    return re.search(r"project\(\s*engine\s+VERSION\s+([0-9.]+)", text).group(1)


class build_with_library(build_py):
    """Puts libengine and the program beside the modules."""

    def run(self):
        super().run()
        folder = os.environ.get("ENGINE_BUILD")
        if folder is None:
            folder = pathlib.Path(self.build_lib).resolve().parent / "engine"
            cuda = "AUTO" if pathlib.Path("/dev/nvidiactl").exists() else "OFF"  # kernels take minutes to compile
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF", f"-DENGINE_CUDA={cuda}",
                       *os.environ.get("ENGINE_CMAKE", "").split()]
            subprocess.run(["cmake", "-S", SOURCE, "-B", folder, *options], check=True)
            subprocess.run(["cmake", "--build", folder, "--parallel", "--target", "engine_library", "engine"],
                           check=True)
        package = pathlib.Path(self.build_lib) / "engine_dp"
        with tempfile.TemporaryDirectory() as prefix:
            subprocess.run(["cmake", "--install", folder, "--prefix", prefix, "--component", "program", "--strip"],
                           check=True)
            for kind, name in (("bin", "engine"), ("lib", "libengine.so.0")):
                (package / kind).mkdir(parents=True, exist_ok=True)
                shutil.copy(next(pathlib.Path(prefix).rglob(name)), package / kind / name)


# ctypes loads the library, so that a wheel is for one platform and for every Python.
setup(version=version(), cmdclass={"build_py": build_with_library},
      options={"bdist_wheel": {"plat_name": sysconfig.get_platform()}})
