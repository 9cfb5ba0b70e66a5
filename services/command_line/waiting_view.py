"""Why a workload waits, in few words, once: in a row, or region by region with who holds what it could use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from services.command_line.table_fit import TextTable
from services.command_line.wording import counted, moment, number

if TYPE_CHECKING:
    from topmast import CapacityHolder, Diagnosis, OutOfUse, QueuePosition, RegionDiagnosis

_HOLDERS_SHOWN = 4
_STATES = {"draining": "drained"}
"""As the commands call them."""


def diagnosis_words(diagnosis: Diagnosis | None) -> str:
    """no_room: 3 of 8 tasks, in east/e1, job train, since 12:00; "" without one."""
    if diagnosis is None:
        return ""
    place = "/".join(name for name in (diagnosis.region, diagnosis.cluster) if name)
    parts = [*_numbers(diagnosis), *([f"in {place}"] if place else []), *_what(diagnosis)]
    if diagnosis.since_s is not None:
        parts.append(f"since {moment(diagnosis.since_s)}")
    return f"{diagnosis.reason}: {', '.join(parts)}" if parts else diagnosis.reason


def waiting_words(position: QueuePosition | None, otherwise: str) -> str:
    """Why it is where it is: what the closest region says, or when it is tried again; else `otherwise`."""
    if position is None:
        return otherwise
    if position.next_try_s is not None:
        return f"tried again at {moment(position.next_try_s)}"
    return diagnosis_words(position.diagnosis) or otherwise


def waiting_table(found: Iterable[RegionDiagnosis]) -> TextTable:
    """A row for each region: why it has no place, and who holds what would do."""
    return TextTable(
        "Why it waits",
        ("region", "cluster", "reason", "what", "since", "held by"),
        [
            (
                one.diagnosis.region,
                one.diagnosis.cluster,
                one.diagnosis.reason,
                # Which field it is, the reason says.
                ", ".join([*_numbers(one.diagnosis), *_what(replace(one.diagnosis, field=""))]),
                moment(one.diagnosis.since_s),
                "; ".join([*_holders(one.holders), *map(_out_of_use, one.out_of_use)]),
            )
            for one in found
        ],
        prose=frozenset({3, 5}),
        least=(4, 1),
    )


def _numbers(diagnosis: Diagnosis) -> list[str]:
    return [f"{number(found.available)} of {number(found.asked)} {found.quantity}" for found in diagnosis.numbers]


def _what(diagnosis: Diagnosis) -> list[str]:
    """The job, the field, the cells and the tables that it is about."""
    parts = [f"job {diagnosis.job}"] if diagnosis.job else []
    if diagnosis.field:
        parts.append(diagnosis.field)
    if diagnosis.cells_owned:
        parts.append(f"asks for {diagnosis.cells_asked}, owns {diagnosis.cells_owned}")
    if diagnosis.tables:
        parts.append(f"without {' '.join(diagnosis.tables)}")
    return parts


def _holders(holders: tuple[CapacityHolder, ...]) -> list[str]:
    words = [_holder(one) for one in holders[:_HOLDERS_SHOWN]]
    if len(holders) > _HOLDERS_SHOWN:
        words.append(f"and {len(holders) - _HOLDERS_SHOWN} more")
    return words


def _holder(holder: CapacityHolder) -> str:
    """Of other tenants only how many there are, of which priority."""
    held = counted(holder.gpus, "GPU") if holder.gpus else f"{number(holder.cpus)} CPUs"
    if holder.workload:
        return f"{holder.workload} ({holder.name}) {held}"
    return f"other tenants, priority {holder.priority}: {held} in {counted(holder.workloads, 'workload')}"


def _out_of_use(machines: OutOfUse) -> str:
    having = f" with {counted(machines.gpus, 'GPU')}" if machines.gpus else ""
    return f"{counted(machines.machines, 'machine')}{having} {_STATES.get(machines.state, machines.state)}"
