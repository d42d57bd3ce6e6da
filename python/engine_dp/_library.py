"""The C library (engine/engine.h) and the program: where they are, and what their failures become."""

import ctypes
import ctypes.util
import os
import pathlib
import shutil
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_longlong, c_ulonglong, c_void_p
from typing import Optional

_HERE = pathlib.Path(__file__).resolve().parent


class EngineError(Exception):
    """What the engine says is wrong: a message, what to do about it, and the program's exit code for it."""

    def __init__(self, message: str, hint: str = "", code: int = 70):
        super().__init__(f"{message}\nhint: {hint}" if hint else message)
        self.message, self.hint, self.code = message, hint, code


class Init(ctypes.Structure):
    _fields_ = [
        ("init", c_char_p), ("rank", c_int), ("size", c_int), ("token", c_char_p), ("link", c_char_p),
        ("algorithm", c_char_p), ("order", c_char_p), ("interface", c_char_p), ("secure", c_char_p), ("timeout", c_double),
        ("bandwidth", c_double), ("latency", c_double),
    ]


class Stats(ctypes.Structure):
    _fields_ = [("sent", c_longlong), ("received", c_longlong), ("calls", c_longlong), ("busy", c_double)]


class Call(ctypes.Structure):
    _fields_ = [
        ("name", c_char * 24), ("number", c_longlong), ("sequence", c_longlong), ("bytes", c_longlong),
        ("tag", c_longlong),
        ("began", c_longlong), ("ended", c_longlong), ("root", c_int), ("code", c_int),
    ]


def program() -> str:
    """The path of the program 'engine': ENGINE_PROGRAM, the package's own, or the one on the PATH."""
    given = os.environ.get("ENGINE_PROGRAM")
    own = _HERE / "bin" / "engine"
    found = given or (str(own) if own.exists() else shutil.which("engine"))
    if not found:
        raise EngineError("the program 'engine' is not found",
                          "install the engine, or set ENGINE_PROGRAM to its path", 66)
    return found


def _load() -> ctypes.CDLL:
    own = _HERE / "lib" / "libengine.so.0"
    path = os.environ.get("ENGINE_LIBRARY") or (str(own) if own.exists() else ctypes.util.find_library("engine"))
    if not path:
        raise EngineError("the library libengine.so is not found",
                          "install the engine, or set ENGINE_LIBRARY to the library's path", 66)
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise EngineError(f"the library cannot be loaded: {e}", "", 66) from None


_G, _W, _OUT = c_void_p, c_void_p, POINTER(c_void_p)
_CALLS = {  # name: (result, arguments)
    "engine_version": (c_char_p, []),
    "engine_message": (c_char_p, []),
    "engine_hint": (c_char_p, []),
    "engine_group_open": (c_int, [POINTER(Init), _OUT]),
    "engine_group_close": (None, [_G]),
    "engine_group_rank": (c_int, [_G]),
    "engine_group_size": (c_int, [_G]),
    "engine_group_choice": (c_char_p, [_G, c_ulonglong]),
    "engine_group_split": (c_int, [_G, c_int, c_int, _OUT]),
    "engine_group_alloc": (c_int, [_G, c_ulonglong, _OUT]),
    "engine_group_abort": (None, [_G, c_char_p]),
    "engine_group_stats": (None, [_G, POINTER(Stats)]),
    "engine_group_name": (c_char_p, [_G]),
    "engine_group_label": (None, [_G, c_char_p]),
    "engine_group_calls": (c_int, [_G, c_int, c_longlong, POINTER(Call), c_int]),
    "engine_group_clock": (c_int, [_G, POINTER(c_longlong), POINTER(c_longlong)]),
    "engine_all_reduce_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, c_int, _OUT]),
    "engine_reduce_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, c_int, c_int, _OUT]),
    "engine_broadcast_start": (c_int, [_G, c_void_p, c_longlong, c_int, c_int, _OUT]),
    "engine_all_gather_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, _OUT]),
    "engine_all_to_all_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, _OUT]),
    "engine_all_to_all_parts_start": (
        c_int, [_G, c_void_p, POINTER(c_longlong), c_void_p, POINTER(c_longlong), c_int, _OUT]),
    "engine_gather_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, c_int, _OUT]),
    "engine_scatter_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, c_int, _OUT]),
    "engine_reduce_scatter_start": (c_int, [_G, c_void_p, c_void_p, c_longlong, c_int, c_int, _OUT]),
    "engine_send_start": (c_int, [_G, c_void_p, c_longlong, c_int, c_int, c_longlong, _OUT]),
    "engine_recv_start": (c_int, [_G, c_void_p, c_longlong, c_int, c_int, c_longlong, POINTER(c_int), _OUT]),
    "engine_barrier": (c_int, [_G]),
    "engine_barrier_start": (c_int, [_G, _OUT]),
    "engine_group_wait_at_once": (None, [_G]),
    "engine_work_done": (c_int, [_W]),
    "engine_work_wait": (c_int, [_W]),
}
_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """The library, loaded when it is first asked for. Its calls release Python's lock while they wait."""
    global _library
    if _library is None:
        lib = _load()
        for name, (result, arguments) in _CALLS.items():
            try:
                function = getattr(lib, name)
            except AttributeError:
                raise EngineError(f"the library has no function {name}: it is older than this package",
                                  "install the engine of the same version", 69) from None
            function.restype, function.argtypes = result, arguments
        _library = lib
    return _library


def check(code: int) -> None:
    """Raises the error that the library has just reported on this thread, if there is one."""
    if code:
        lib = library()
        raise EngineError((lib.engine_message() or b"").decode(errors="replace"),
                          (lib.engine_hint() or b"").decode(errors="replace"), code)


def version() -> str:
    return library().engine_version().decode()
