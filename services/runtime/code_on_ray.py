"""That Ray's worker processes find our code, which is not on their search path (docs/decisions/083)."""

from __future__ import annotations

from typing import Any

import ray

FINDING_OWN_PACKAGES: dict[str, Any] = {"preload_python_modules": ["topmast_server"]}
"""For a Ray that we start (`_system_config`): its workers import this first, also those that it starts in advance."""

_SETUP_HOOK = "topmast_server.own_packages.find_own_packages"


def join_ray(address: str | None = None, **options: Any) -> None:
    """Connects this process to a Ray of others; without an address as Ray finds one by itself (RAY_ADDRESS).

    The workers of this job import our code from where it is installed on their machine. They start a little later for
    it: Ray cannot take those that it has started in advance. Raises what `ray.init` raises.
    """
    ray.init(address=address, runtime_env={"worker_process_setup_hook": _SETUP_HOOK}, **options)
