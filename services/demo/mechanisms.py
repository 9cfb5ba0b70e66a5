"""Which mechanisms acted in a run, how often, and when first: from its event log alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from domain.events import JsonValue

Record = Mapping[str, JsonValue]
"""One line of the event log."""


MECHANISMS = (
    "workloads preempted",
    "levels demoted",
    "cells bound",
    "CPUs retuned",
    "workers scaled",
    "machines lent",
    "machines reclaimed",
    "tables moved",
    "gangs reserved",
    "jobs moved together",
)
"""All that a run may show, as the summary calls them."""


@dataclass(slots=True)
class Acted:
    """One mechanism: how often it acted, and the first time in a sentence; empty: it never did."""

    count: int
    first: str

    def as_json(self) -> dict[str, JsonValue]:
        return {"count": self.count, "first": self.first}


def every_mechanism(records: Iterable[Record]) -> dict[str, Acted]:
    """All of them by name, in the order of MECHANISMS, also those that did not act."""
    acted = mechanisms_of(records)
    return {name: acted.get(name, Acted(0, "")) for name in MECHANISMS}


def mechanisms_of(records: Iterable[Record]) -> dict[str, Acted]:
    """Those that acted, by name, in the order in which they first did."""
    acted: dict[str, Acted] = {}
    levels: dict[str, int] = {}
    for record in records:
        found = _demotion(record, levels) if record["event"] == "ranked" else _action(record)
        if found is None:
            continue
        name, sentence = found
        if name in acted:
            acted[name].count += 1
        else:
            acted[name] = Acted(1, sentence)
    return acted


def _demotion(record: Record, levels: dict[str, int]) -> tuple[str, str] | None:
    """A workload that has received more service is at a worse level of its priority than before; `levels` is kept up to date."""
    workload, level = str(record["workload"]), record.get("level")
    if not isinstance(level, int):
        return None
    # A change of priority is no demotion.
    key = f"{workload} {record.get('priority')}"
    before, levels[key] = levels.get(key, level), level
    if level <= before:
        return None
    return "levels demoted", f"{workload} from level {before} to {level} of priority {record.get('priority')}"


def _action(record: Record) -> tuple[str, str] | None:
    """What an event of another kind shows, and in which words."""
    what, where = f"{record.get('workload')}#{record.get('attempt')}", record.get("region")
    match record["event"]:
        case "dispatched" if "virtual_cluster" in record:
            return "cells bound", f"{what} to cells of {record['virtual_cluster']} in {where}"
        case "tuned":
            return "CPUs retuned", f"{what} in {where}{_speed(record)}"
        case "resized":
            return "workers scaled", f"{what} in {where} to {_tasks(record)} tasks{_speed(record)}"
        case "loaned":
            return "machines lent", f"{record['machine']} of {record['cluster']}: {record['reason']}"
        case "reclaimed":
            return "machines reclaimed", f"{record['machine']} of {record['cluster']}: {record['reason']}"
        case "table_moved":
            return "tables moved", f"{record['table']} from {record['source']} to {where} ({record['kind']})"
        case "reserved":
            machines = record["machines"]
            kept = len(machines) if isinstance(machines, list) else 0
            return "gangs reserved", f"{kept} machines in {where} kept for {record['workload']}"
        case "evicted" if record.get("cause") == "migrated" and "room_for" in record:
            return "jobs moved together", f"{what} made room in {where} for {record['room_for']}"
        case "evicted" if record.get("cause") == "preempted":
            return "workloads preempted", f"{what} in {where} by {record['by']} of priority {record['by_priority']}"
        case _:
            return None


def _tasks(record: Record) -> int:
    placement = record["placement"]
    return len(placement) if isinstance(placement, list) else 0


def _speed(record: Record) -> str:
    speed = record.get("speed")
    return f", now × {speed:.2f} as fast as asked for" if isinstance(speed, (int, float)) else ""
