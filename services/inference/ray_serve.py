"""An inference side that watches a Ray Serve deployment: its replicas, and what each of them needs, say how many machines it
takes. Ray Serve itself scales the replicas by its traffic; Topmast only looks.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from domain.inference import InferenceDemand
from services.inference.demand import LendingCluster, NoDemand

if TYPE_CHECKING:
    from ray.serve.schema import ServeInstanceDetails

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class DeploymentNeed:
    """One deployment: so many replicas are wanted, each of which takes so much."""

    deployment: str
    replicas: int
    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class MachineSize:
    """What a machine of the inference cluster has."""

    gpus: int
    cpus: float


def machines_for(needs: Iterable[DeploymentNeed], size: MachineSize) -> int:
    """How many machines the replicas take, whole replicas to a machine, one deployment's beside the other's.

    The replicas of all deployments go first-fit by falling share of a machine. Raises NoDemand for a replica that no
    machine has room for.
    """
    free: list[tuple[float, float]] = []
    shares = sorted(
        ((max(_share(need.gpus, size.gpus), _share(need.cpus, size.cpus)), need) for need in needs),
        key=lambda pair: (-pair[0], pair[1].deployment),
    )
    for share, need in shares:
        if share > 1 + _ROUNDING:
            raise NoDemand(
                f"a replica of {need.deployment} takes {need.gpus:g} GPUs and {need.cpus:g} CPUs, but a machine has"
                f" {size.gpus} and {size.cpus:g}; give the size of the machines that serve it"
            )
        for _ in range(need.replicas):
            _put(free, need, size)
    return len(free)


def _put(free: list[tuple[float, float]], need: DeploymentNeed, size: MachineSize) -> None:
    for place, (gpus, cpus) in enumerate(free):
        if need.gpus <= gpus + _ROUNDING and need.cpus <= cpus + _ROUNDING:
            free[place] = gpus - need.gpus, cpus - need.cpus
            return
    free.append((size.gpus - need.gpus, size.cpus - need.cpus))


def _share(wanted: float, there: float) -> float:
    if wanted <= 0:
        return 0.0
    return wanted / there if there > 0 else math.inf


class RayServeDemand:
    """Watches one application of Ray Serve, or all ("" as `application`). Ray must be initialised in this process."""

    def __init__(self, size: MachineSize, application: str = "", reclaim_within_s: float | None = None) -> None:
        self._size = size
        self._application = application
        self._reclaim_within_s = reclaim_within_s

    async def demand(self, about: LendingCluster, now: float) -> InferenceDemand:
        needs = await asyncio.to_thread(self._needs)
        return InferenceDemand(machines_for(needs, self._size), None, self._reclaim_within_s)

    async def close(self) -> None:
        pass

    def _needs(self) -> list[DeploymentNeed]:
        details = _details()
        if self._application and self._application not in details.applications:
            known = ", ".join(sorted(details.applications)) or "none"
            raise NoDemand(f"Ray Serve has no application {self._application}; it has: {known}")
        return [
            DeploymentNeed(f"{name}/{deployment.name}", deployment.target_num_replicas, *_takes(deployment))
            for name, application in sorted(details.applications.items())
            if self._application in ("", name)
            for _, deployment in sorted(application.deployments.items())
        ]


def _takes(deployment: object) -> tuple[float, float]:
    """GPUs and CPUs of one replica."""
    config = getattr(deployment, "deployment_config", None)
    options = getattr(config, "ray_actor_options", None)
    return float(getattr(options, "num_gpus", 0) or 0), float(getattr(options, "num_cpus", 1) or 0)


def _details() -> ServeInstanceDetails:
    try:
        from ray.serve.context import _get_global_client
        from ray.serve.schema import ServeInstanceDetails
    except ModuleNotFoundError as error:
        raise NoDemand(f"watching Ray Serve needs 'ray[serve]' ({error}): pip install 'ray[serve]'") from error
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        raise NoDemand("Ray Serve does not run here; start it (serve run), or give the address of its Ray cluster")
    return ServeInstanceDetails(**client.get_serve_details())
