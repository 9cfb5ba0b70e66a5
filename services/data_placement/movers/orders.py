"""What a mover is told, and what it answers; JSON, for movers that are processes of their own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class MoverTask(StrEnum):
    COPY = "copy"
    VERIFY = "verify"
    SETTLE = "settle"
    """The copy counts from now on: what was only written to make it goes."""
    CLEAN = "clean"
    """The copy was given up: everything that was written to make it goes."""
    DELETE = "delete"
    """The copy at the source goes, as far as the target has the same."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A file of a table. An empty checksum is not known; else `algorithm:hexadecimal digits`."""

    name: str
    size_bytes: int
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class OrderedPart:
    """So many bytes go over these regions."""

    path: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class MoverOrder:
    """One task of one migration."""

    task: MoverTask
    migration: int
    token: int
    """Of the lease under which it is carried out: no two movers write to one temporary file."""
    table: str
    target: str
    source: str
    """Which copy goes, for DELETE; else where the table is read when there are no parts."""
    storage: tuple[tuple[str, str], ...]
    """The URL of each region's storage."""
    parts: tuple[OrderedPart, ...] = ()
    partitions: tuple[Partition, ...] = ()
    """All that there are; empty: those are copied that the source has."""
    size_bytes: int = 0
    """Of the table, by the catalog."""

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> MoverOrder:
        """What `as_json` wrote."""
        fields = json.loads(text)
        return MoverOrder(
            MoverTask(fields["task"]),
            fields["migration"],
            fields["token"],
            fields["table"],
            fields["target"],
            fields["source"],
            tuple((region, url) for region, url in fields["storage"]),
            tuple(OrderedPart(tuple(part["path"]), part["bytes"]) for part in fields["parts"]),
            tuple(Partition(**partition) for partition in fields["partitions"]),
            fields["size_bytes"],
        )


@dataclass(frozen=True, slots=True)
class MoverOutcome:
    """How a task ended."""

    reason: str = ""
    """Why it failed, in a sentence; empty: it is done."""
    remark: str = ""
    """What else there is to know, in a sentence."""

    @property
    def done(self) -> bool:
        return not self.reason


def paths_of(partitions: Sequence[Partition], parts: Sequence[OrderedPart]) -> list[tuple[str, ...]]:
    """Which way each partition goes: the way on which its first byte lies, in the order of both."""
    ways: list[tuple[str, ...]] = []
    place, left, before = 0, parts[0].bytes if parts else 0, 0
    for partition in partitions:
        while place < len(parts) - 1 and before >= left:
            place += 1
            left += parts[place].bytes
        ways.append(parts[place].path)
        before += partition.size_bytes
    return ways
