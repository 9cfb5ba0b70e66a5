"""Machines that operators take out of use, by the name of a machine, a rack, a cluster or a region: found here, drained by the
schedulers of their regions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from domain.fleet import MachineState
from domain.identifiers import MachineId, RegionId
from services.database import fleet_look_store, fleet_store
from services.database.connection import AnyConnection
from services.database.fleet_look_store import Scope, ScopeKind
from services.global_scheduler.region_calls import Stub, call_region, regional_address
from services.global_scheduler.request_checks import Checks
from services.grpc_errors import CallRefused, InvalidArgument, NotFound, PreconditionFailed, Unavailable
from services.security.transport import PLAINTEXT, TransportSecurity
from topmast.v1 import fleet_state_pb2 as messages
from topmast.v1 import regional_scheduler_pb2 as regional

GREATEST_NAMES = 1_000
_SHOWN_EVICTIONS = 1_000
_MOST_AT_ONCE = 2_000
"""Machines in one call to a region."""
_NAMED = 20

_DRAINED = (MachineState.DRAINING, MachineState.DRAINING_DOWN)


@dataclass(frozen=True, slots=True)
class ChosenMachines:
    """What the names of a request stand for."""

    scopes: Sequence[Scope]
    states: Mapping[RegionId, Mapping[MachineId, MachineState]] = field(default_factory=dict)
    """Of machines for training, by region; each once."""
    addresses: Mapping[RegionId, str] = field(default_factory=dict)
    """Of the schedulers of these regions."""
    inference_machines: int = 0


async def choose_machines(connection: AnyConnection, names: Sequence[str], kind: str) -> ChosenMachines:
    """Raises InvalidArgument, NotFound for a name that the fleet does not have, PreconditionFailed for one that stands for
    several things, or for machines of inference alone, and Unavailable where a region's scheduler is away."""
    wanted_kind = _checked(names, kind)
    scopes = [await _scope(connection, name, wanted_kind) for name in dict.fromkeys(names)]
    states: dict[RegionId, dict[MachineId, MachineState]] = {}
    inference: set[MachineId] = set()
    for scope in scopes:
        found = await fleet_look_store.machines_in(connection, scope)
        training = {machine: state for machine, state in found.items() if not state.is_of_inference}
        if found and not training:
            raise PreconditionFailed(
                "INFERENCE",
                scope.name,
                f"{scope.kind} {scope.name} has machines of inference alone: its inference side has them, and loans decide"
                " (topmast loans)",
            )
        inference.update(found.keys() - training.keys())
        if training:
            states.setdefault(scope.region, {}).update(training)
    addresses = {region: await regional_address(connection, region) for region in states}
    return ChosenMachines(scopes, states, addresses, len(inference))


def _checked(names: Sequence[str], kind: str) -> ScopeKind | None:
    checks = Checks()
    if not names:
        checks.add("names", "are none; name machines, racks, clusters or regions")
    if len(names) > GREATEST_NAMES:
        checks.add("names", f"are {len(names)}; at most {GREATEST_NAMES} are possible")
    for index, name in enumerate(names[:GREATEST_NAMES]):
        if checks.name(f"names[{index}]", name) is None and not name:
            checks.add(f"names[{index}]", "is empty; name a machine, a rack, a cluster or a region")
    if kind and kind not in tuple(ScopeKind):
        checks.add("kind", f"must be one of {', '.join(ScopeKind)}, not {kind!r}")
    checks.raise_problems()
    return ScopeKind(kind) if kind else None


async def _scope(connection: AnyConnection, name: str, kind: ScopeKind | None) -> Scope:
    found = await fleet_look_store.scopes_named(connection, name)
    if not found and "/" in name:
        region, _, rest = name.partition("/")
        found = await fleet_look_store.scopes_named(connection, rest, region)
    found = [scope for scope in found if kind in (None, scope.kind)]
    if not found:
        regions = await fleet_store.region_names(connection)
        what = kind.value if kind is not None else "machine, rack, cluster or region"
        raise NotFound(what, name, f"the fleet has the regions {', '.join(regions[:_NAMED]) or 'none'} (topmast fleet)")
    if len(found) > 1:
        there = ", ".join(f"{scope.kind} {scope.region}/{scope.name}" for scope in found[:_NAMED])
        raise PreconditionFailed(
            "AMBIGUOUS",
            name,
            f"{name} is {len(found)} things: {there}; say which, by REGION/{name.rpartition('/')[2]} or the kind (--kind)",
        )
    return found[0]


def deadline_of(request: messages.DrainRequest, now: float) -> float | None:
    """When what is still there has to leave; None: at once. Raises InvalidArgument."""
    if request.HasField("deadline_s") and request.HasField("within_s"):
        raise InvalidArgument.of("within_s", "and deadline_s are both given; give one of them")
    if request.HasField("within_s"):
        if not (math.isfinite(request.within_s) and request.within_s >= 0.0):
            raise InvalidArgument.of("within_s", f"is {request.within_s:g}; it must be 0 seconds or more")
        return now + request.within_s
    if request.HasField("deadline_s"):
        if not math.isfinite(request.deadline_s):
            raise InvalidArgument.of("deadline_s", f"is {request.deadline_s}; it must be a finite number of seconds")
        if request.deadline_s < now:
            raise InvalidArgument.of(
                "deadline_s", f"was {now - request.deadline_s:,.0f} s ago; leave it out for at once"
            )
        return request.deadline_s
    return None


def checked_reason(request: messages.DrainRequest) -> str:
    """Raises InvalidArgument when it cannot be stored."""
    checks = Checks()
    reason = checks.text("reason", request.reason)
    checks.raise_problems()
    return reason


async def drain(
    chosen: ChosenMachines, reason: str, deadline_s: float | None, security: TransportSecurity = PLAINTEXT
) -> messages.DrainResponse:
    """Has their regions drain them. When one fails, the error says which are done: to ask again does the rest."""
    evicting: list[str] = []
    done: list[str] = []
    for region, states in chosen.states.items():
        for part in _parts(states):
            asked = regional.DrainMachinesRequest(machines=part, reason=reason, deadline_s=deadline_s)
            try:
                answer = await call_region(chosen.addresses[region], region, partial(_drain_part, asked), security)
            except CallRefused as refused:
                raise _partly(refused, region, done) from refused
            evicting += answer.evicting
        done.append(region)
    return messages.DrainResponse(
        scopes=[_scope_message(scope) for scope in chosen.scopes],
        machines=sum(len(states) for states in chosen.states.values()),
        inference_machines=chosen.inference_machines,
        evicting=sorted(evicting)[:_SHOWN_EVICTIONS],
        evicting_count=len(evicting),
        deadline_s=deadline_s,
    )


async def undrain(chosen: ChosenMachines, security: TransportSecurity = PLAINTEXT) -> messages.UndrainResponse:
    """Has their regions undo the drains of those that are drained."""
    undone = 0
    done: list[str] = []
    for region, states in chosen.states.items():
        for part in _parts({machine: state for machine, state in states.items() if state in _DRAINED}):
            asked = regional.UndrainMachinesRequest(machines=part)
            try:
                await call_region(chosen.addresses[region], region, partial(_undrain_part, asked), security)
            except CallRefused as refused:
                raise _partly(refused, region, done) from refused
            undone += len(part)
        done.append(region)
    return messages.UndrainResponse(scopes=[_scope_message(scope) for scope in chosen.scopes], machines=undone)


async def _drain_part(asked: regional.DrainMachinesRequest, scheduler: Stub) -> regional.DrainMachinesResponse:
    return await scheduler.DrainMachines(asked)


async def _undrain_part(asked: regional.UndrainMachinesRequest, scheduler: Stub) -> regional.UndrainMachinesResponse:
    return await scheduler.UndrainMachines(asked)


def _parts(machines: Mapping[MachineId, MachineState]) -> list[list[MachineId]]:
    names = sorted(machines)
    return [names[first : first + _MOST_AT_ONCE] for first in range(0, len(names), _MOST_AT_ONCE)]


def _partly(refused: CallRefused, region: str, done: Sequence[str]) -> CallRefused:
    """Where other regions have done it already, that is said too."""
    if not done:
        return refused
    return Unavailable(
        f"it is done in {', '.join(done)}, but region {region} says: {refused.sentence}; ask again for the rest"
    )


def _scope_message(scope: Scope) -> messages.MachineScope:
    return messages.MachineScope(kind=scope.kind.value, name=scope.name, region=scope.region)
