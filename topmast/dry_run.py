"""What would happen: the answers of the `check` methods, which store nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topmast.v1 import global_scheduler_pb2


@dataclass(frozen=True, slots=True)
class HostingRegion:
    """A region that could host a workload with nothing running there.

    `clusters` are those that could host all of it alone; none of them: only several together.
    """

    region: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedWorkload:
    """A workload would be accepted, and these regions could host it, whatever tables they hold.

    `workload` is the one that the idempotency key was used for before: submitting would only name it. Empty: none.
    """

    hosts: tuple[HostingRegion, ...]
    workload: str = ""


@dataclass(frozen=True, slots=True)
class KindChanges:
    """What would be added, removed and changed of one kind: `region`, `cluster`, `machine` or `tenant`.

    Of each list the first 1,000 names at most, sorted; the counts are of all.
    """

    kind: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    added_count: int
    removed_count: int
    changed_count: int


@dataclass(frozen=True, slots=True)
class DryRunChanges:
    """What applying would do. `refused` says why it would be refused at this moment; empty: it would not.

    `drain_first` are the machines that would disappear or change while work runs there, each with an attempt.
    """

    kinds: tuple[KindChanges, ...]
    refused: str = ""
    drain_first: tuple[tuple[str, str], ...] = ()


def checked_from_proto(message: global_scheduler_pb2.SubmitWorkloadResponse) -> CheckedWorkload:
    hosts = tuple(HostingRegion(host.region, tuple(host.clusters)) for host in message.hosts)
    return CheckedWorkload(hosts, message.workload)


def changes_from_proto(message: global_scheduler_pb2.DryRunChanges) -> DryRunChanges:
    return DryRunChanges(
        tuple(
            KindChanges(
                one.kind,
                tuple(one.added),
                tuple(one.removed),
                tuple(one.changed),
                one.added_count,
                one.removed_count,
                one.changed_count,
            )
            for one in message.kinds
        ),
        message.refused,
        tuple((one.machine, one.attempt) for one in message.drain_first),
    )


def as_dry_run(batch: global_scheduler_pb2.SubmitWorkloadsRequest) -> global_scheduler_pb2.SubmitWorkloadsRequest:
    """The same batch, of which nothing is to be stored."""
    requests: Iterable[global_scheduler_pb2.SubmitWorkloadRequest] = batch.requests
    for request in requests:
        request.dry_run = True
    return batch
