"""Makes the backend "engine" known to torch.distributed. Torch finds this module by the entry point torch.backends and
calls register() when it is imported itself, so that init_process_group("engine") needs no other import. All else is
imported when the first group is made."""

import sys
from typing import Any


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    """Torch does not say whether the group has other backends, too, but a local variable of the caller does."""
    asked = str(sys._getframe(1).f_locals.get("backend", "engine"))
    import engine_dp.torch
    kind = engine_dp.torch.Backend if "," in asked else engine_dp.torch.ProcessGroup
    return kind(store, rank, size, timeout)


def register() -> None:
    import torch.distributed as dist
    if not dist.is_available() or hasattr(dist.Backend, "ENGINE"):
        return
    devices = {"devices": ["cpu"]} if hasattr(dist.Backend, "default_device_backend_map") else {}  # since 2.1
    dist.Backend.register_backend("engine", _create, **devices)
    # torch's own flight recorder needs a backend in C++.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("engine")
