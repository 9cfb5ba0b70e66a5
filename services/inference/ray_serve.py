"""An inference side that watches a Ray Serve deployment: its replicas, and what each of them needs, say how many machines it
takes. Ray Serve itself scales the replicas by its traffic; Topmast only looks.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from domain.inference import InferenceDemand
from services.inference.demand import LendingCluster, NoDemand

if TYPE_CHECKING:
    from ray.serve.schema import DeploymentDetails, ServeInstanceDetails

PATIENCE_REAL_S = 4.0
"""Ray Serve has to answer within so long: less than the patience of who asks us."""
_ROUNDING = 1e-9
_CPUS_OF_A_REPLICA = 1.0
"""What Ray Serve takes where a deployment does not say."""


class ReplicaPart(NamedTuple):
    """What has to be together on one machine."""

    gpus: float
    cpus: float


@dataclass(frozen=True, slots=True)
class DeploymentNeed:
    """One deployment: so many replicas, each of which takes so much."""

    deployment: str
    replicas: int
    parts: tuple[ReplicaPart, ...]
    """Of one replica: more than one where it has a placement group that need not be on one machine."""
    apart: bool = False
    """No two parts of a replica may share a machine."""


@dataclass(frozen=True, slots=True)
class MachineSize:
    """What a machine of the inference cluster has."""

    gpus: int
    cpus: float


def machines_for(needs: Iterable[DeploymentNeed], size: MachineSize) -> int:
    """How many machines the replicas take, whole parts to a machine, one deployment's beside the other's.

    The replicas of all deployments go first-fit by falling share of a machine. Raises NoDemand for a part that no
    machine has room for.
    """
    free: list[ReplicaPart] = []
    shares = sorted(
        ((_largest_share(need, size), need) for need in needs), key=lambda pair: (-pair[0], pair[1].deployment)
    )
    for _, need in shares:
        for _ in range(need.replicas):
            taken: list[int] = []
            for part in need.parts:
                taken.append(_put(free, part, size, taken if need.apart else ()))
    return len(free)


def _largest_share(need: DeploymentNeed, size: MachineSize) -> float:
    largest = 0.0
    for part in need.parts:
        share = max(_share(part.gpus, size.gpus), _share(part.cpus, size.cpus))
        if share > 1 + _ROUNDING:
            raise NoDemand(
                f"a replica of {need.deployment} takes {part.gpus:g} GPUs and {part.cpus:g} CPUs, but a machine has"
                f" {size.gpus} and {size.cpus:g}; give the size of the machines that serve it"
            )
        largest = max(largest, share)
    return largest


def _put(free: list[ReplicaPart], part: ReplicaPart, size: MachineSize, closed: Sequence[int]) -> int:
    """The machine on which it is now: the first with room that is not closed, else one more."""
    for machine, (gpus, cpus) in enumerate(free):
        if machine not in closed and part.gpus <= gpus + _ROUNDING and part.cpus <= cpus + _ROUNDING:
            free[machine] = ReplicaPart(gpus - part.gpus, cpus - part.cpus)
            return machine
    free.append(ReplicaPart(size.gpus - part.gpus, size.cpus - part.cpus))
    return len(free) - 1


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
        details, groups = _details()
        if self._application and self._application not in details.applications:
            known = ", ".join(sorted(details.applications)) or "none"
            raise NoDemand(f"Ray Serve has no application {self._application}; it has: {known}")
        return [
            _need_of(f"{name}/{deployment.name}", deployment, groups)
            for name, application in sorted(details.applications.items())
            if self._application in ("", name)
            for _, deployment in sorted(application.deployments.items())
        ]


class _PlacementGroup(NamedTuple):
    """What Ray keeps for one replica that has more than an actor."""

    parts: tuple[ReplicaPart, ...]
    strategy: str


def check_ray_serve() -> None:
    """Raises NoDemand where Ray Serve is not installed."""
    try:
        import ray.serve.schema  # noqa: F401 (only whether it is there)
    except ModuleNotFoundError as error:
        raise NoDemand(f"watching Ray Serve needs 'ray[serve]' ({error}): pip install 'topmast[serve]'") from error


def _need_of(name: str, deployment: DeploymentDetails, groups: Mapping[str, _PlacementGroup]) -> DeploymentNeed:
    """Replicas that are about to stop still serve what they have begun; those that are to come have to find a place."""
    replicas = max(deployment.target_num_replicas, len(deployment.replicas))
    for replica in deployment.replicas:
        # A deployment does not say what its placement groups are: those of its replicas do, and all are alike.
        group = groups.get(replica.actor_name or "")
        if group is None:
            continue
        if group.strategy == "STRICT_PACK":
            gpus = math.fsum(part.gpus for part in group.parts)
            whole = ReplicaPart(gpus, math.fsum(part.cpus for part in group.parts))
            return DeploymentNeed(name, replicas, (whole,))
        return DeploymentNeed(name, replicas, group.parts, group.strategy == "STRICT_SPREAD")
    options: Any = deployment.deployment_config.ray_actor_options
    cpus_said = getattr(options, "num_cpus", None)
    cpus = _CPUS_OF_A_REPLICA if cpus_said is None else float(cpus_said)
    return DeploymentNeed(name, replicas, (ReplicaPart(float(getattr(options, "num_gpus", None) or 0.0), cpus),))


def _details() -> tuple[ServeInstanceDetails, dict[str, _PlacementGroup]]:
    """What Ray Serve says of itself, and Ray's placement groups by name: a replica's has the name of its actor.

    Raises NoDemand; never starts a Ray, and never waits without end.
    """
    check_ray_serve()
    import ray
    from ray.exceptions import RayError
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
    from ray.serve.schema import ServeInstanceDetails
    from ray.util import placement_group_table

    if not ray.is_initialized():
        # Any other call of Ray would start one here.
        raise NoDemand("the connection to Ray is lost; start the inference scheduler again when Ray runs")
    try:
        controller: Any = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
        details: Any = ray.get(controller.get_serve_instance_details.remote(), timeout=PATIENCE_REAL_S)
        table: Any = placement_group_table()
    except ValueError as error:
        raise NoDemand("Ray Serve does not run there; start it (serve run), or give the address of its Ray") from error
    except RayError as error:
        raise NoDemand(f"Ray Serve does not answer ({type(error).__name__})") from error
    groups = {
        one["name"]: _PlacementGroup(
            tuple(ReplicaPart(bundle.get("GPU", 0.0), bundle.get("CPU", 0.0)) for bundle in one["bundles"].values()),
            one["strategy"],
        )
        for one in table.values()
        if one["state"] != "REMOVED"
    }
    return ServeInstanceDetails(**details), groups
