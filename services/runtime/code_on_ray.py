"""That Ray's worker processes find our code, which is not on their search path (docs/decisions/083)."""

from __future__ import annotations

import os
import re
import socket
from typing import Any

import ray

FINDING_OWN_PACKAGES: dict[str, Any] = {"preload_python_modules": ["topmast_server"]}
"""For a Ray that we start (`_system_config`): its workers import this first, also those that it starts in advance."""

_SETUP_HOOK = "topmast_server.own_packages.find_own_packages"

_ADDRESS_VARIABLE = "RAY_ADDRESS"
_HOST_AND_PORT = re.compile(r"(?P<host>[^/\s]+):(?P<port>\d+)")
_ANSWER_PATIENCE_REAL_S = 10.0


class RayNotJoined(Exception):
    """There is no Ray where one was said to be, or none of its nodes is on this machine; the message says which."""


def join_ray(address: str | None = None, **options: Any) -> None:
    """Connects this process to a Ray of others; without an address as Ray finds one by itself (RAY_ADDRESS).

    The workers of this job import our code from where it is installed on their machine. They start a little later for
    it: Ray cannot take those that it has started in advance. Raises RayNotJoined, and what else `ray.init` raises.
    """
    named = address or os.environ.get(_ADDRESS_VARIABLE, "")
    _require_answer(named)
    try:
        ray.init(address=address, runtime_env={"worker_process_setup_hook": _SETUP_HOOK}, **options)
    except ConnectionError as error:
        raise RayNotJoined(
            f"the Ray at {named or 'this machine'} cannot be joined from here ({error}): one of its nodes has to be on this "
            "machine, in a container of the same process and network namespace; start it first with 'ray start'"
        ) from error


def _require_answer(named: str) -> None:
    """Raises RayNotJoined where nobody listens: Ray itself would look for minutes, and not say for what."""
    if (address := _HOST_AND_PORT.fullmatch(named)) is None:
        return
    try:
        socket.create_connection((address["host"], int(address["port"])), timeout=_ANSWER_PATIENCE_REAL_S).close()
    except OSError as error:
        raise RayNotJoined(
            f"no Ray answers at {named} ({error}); start its head there with 'ray start --head', or correct {_ADDRESS_VARIABLE}"
        ) from error
