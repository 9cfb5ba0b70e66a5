"""Machines that are taken out of use, and put back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topmast.messages import message_of, strings
from topmast.v1 import fleet_state_pb2


@dataclass(frozen=True, slots=True)
class MachineScope:
    """What a name stands for: `kind` is machine, rack, cluster or region."""

    kind: str
    name: str
    region: str


@dataclass(frozen=True, slots=True)
class Drained:
    """What was drained: `machines` are drained now, whether they were before or not. Those of inference clusters are not.

    `evicting`: what is asked to leave at once, as workload#attempt, the first 1,000 of `evicting_count`. `deadline_s`: when
    what is still there has to leave, a time of the service; None: at once.
    """

    scopes: tuple[MachineScope, ...]
    machines: int
    inference_machines: int
    evicting: tuple[str, ...]
    evicting_count: int
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class Undrained:
    """What takes work again: `machines` were drained until now."""

    scopes: tuple[MachineScope, ...]
    machines: int


def drain_request(
    names: str | Sequence[str], kind: str, reason: str, within_s: float | None, deadline_s: float | None
) -> fleet_state_pb2.DrainRequest:
    return message_of(
        fleet_state_pb2.DrainRequest,
        names=_names(names),
        kind=kind,
        reason=reason,
        within_s=within_s,
        deadline_s=deadline_s,
    )


def undrain_request(names: str | Sequence[str], kind: str) -> fleet_state_pb2.UndrainRequest:
    return message_of(fleet_state_pb2.UndrainRequest, names=_names(names), kind=kind)


def drained_from_proto(message: fleet_state_pb2.DrainResponse) -> Drained:
    return Drained(
        _scopes(message.scopes),
        message.machines,
        message.inference_machines,
        tuple(message.evicting),
        message.evicting_count,
        message.deadline_s if message.HasField("deadline_s") else None,
    )


def undrained_from_proto(message: fleet_state_pb2.UndrainResponse) -> Undrained:
    return Undrained(_scopes(message.scopes), message.machines)


def _names(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else strings("names", names)


def _scopes(messages: Sequence[fleet_state_pb2.MachineScope]) -> tuple[MachineScope, ...]:
    return tuple(MachineScope(one.kind, one.name, one.region) for one in messages)
