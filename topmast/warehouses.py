"""Tables of the data warehouse as clients see them: where they are, where they should be, how they get there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from topmast.messages import mapping, message_list, message_of, refused, shown
from topmast.v1 import data_placement_pb2 as messages


@dataclass(frozen=True, slots=True)
class ImportedWarehouse:
    """What an import did, or would do."""

    tables: int
    new_tables: int
    changed_tables: int
    dropped_tables: int
    partitions: int
    readers: int
    reads: int
    revision: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A copy beside the home. `complete_until_s`: it has every partition that was created up to then; None: nobody knows.

    `partitions`: so many, where it is not complete; None: it is. `newest_partitions`: so many of these are the newest of the
    table, without a gap.
    """

    region: str
    complete_until_s: float | None
    partitions: int | None
    newest_partitions: int | None = None


@dataclass(frozen=True, slots=True)
class WarehouseTable:
    """A table. `last_partition_s` None: it has no partitions, and never changes."""

    table: str
    namespace: str
    tenant: str
    size_bytes: int
    home: str
    copies: tuple[TableCopy, ...]
    partitions: int
    last_partition_s: float | None


@dataclass(frozen=True, slots=True)
class TableReader:
    """Something that reads a table, and what it needs in a day. `hint`: where the last plan has it run; "": unknown."""

    reader: str
    kind: str
    gpu_model: str
    priority: int
    gpu_hours: float
    cpu_hours: float
    other_tables: int
    hint: str


@dataclass(frozen=True, slots=True)
class ProposedMove:
    """What a plan proposes. `kind` home: the target becomes the home, and the source gives up its copy;
    home_keeping_copy: the source keeps it; copy: the target gets one more.

    `newest_share`: the copy holds the newest partitions, which are this part of the table's bytes; None: it holds all.
    """

    plan: int
    table: str
    source: str
    target: str
    kind: str
    size_bytes: int
    reason: str
    newest_share: float | None = None


@dataclass(frozen=True, slots=True)
class TableMove:
    """A move under way, or one that was. `plan` 0: of none; `deadline_s` None: whenever there is room.

    `newest_partitions`: so many of the newest are copied; None: the whole table. `to_copy_bytes`: what the target lacked.
    """

    move: int
    table: str
    source: str
    target: str
    kind: str
    state: str
    size_bytes: int
    copied_bytes: int
    planned_s: float
    deadline_s: float | None
    ended_s: float | None
    reason: str
    plan: int
    newest_partitions: int | None = None
    to_copy_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableCommunity:
    """Tables that the same jobs read, as a plan found them. `jobs` read two of its tables or more; `before` and `after` are
    shares of its bytes by home region, the largest first; `sentence` says all of it.
    """

    plan: int
    name: str
    tables: int
    bytes: int
    jobs: int
    gpu_hours: float
    largest_tables: tuple[str, ...]
    namespaces: tuple[str, ...]
    strongest_jobs: tuple[str, ...]
    before: Mapping[str, float]
    after: Mapping[str, float]
    sentence: str


@dataclass(frozen=True, slots=True)
class TableExplanation:
    """All there is to say of a table; `readers` are those that use most, of `all_readers`. `community` None: it is read with no
    other table, or nothing was planned yet.
    """

    table: WarehouseTable
    readers: tuple[TableReader, ...]
    all_readers: int
    proposed: tuple[ProposedMove, ...]
    moves: tuple[TableMove, ...]
    community: TableCommunity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementChoices:
    """How a plan is to be made; what is None is as the service is configured.

    `correlated_failures`: (region, other, how likely the other fails with it); `spare_gpu_shares`: by region, the part of its
    GPU hours that it keeps for the jobs of one that fails.
    """

    solver: str | None = None
    preset: str | None = None
    time_limit_s: float | None = None
    quota_bytes: float | None = None
    keep_to_links: bool | None = None
    home_training_share: float | None = None
    replicas: bool | None = None
    disaster_copies: bool | None = None
    spare_hardware: bool | None = None
    hot_storage_share: float | None = None
    partition_copies: bool | None = None
    correlated_failures: tuple[tuple[str, str, float], ...] | None = None
    spare_gpu_shares: Mapping[str, float] | None = None
    bound: bool | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A plan. `state`: running, ready, applied, superseded or failed, then with a `problem`; `figures` as
    `topmast data plan --json` prints them; `moves` are the first of `all_moves`.
    """

    plan: int
    state: str
    asked_s: float
    ended_s: float | None
    applied_s: float | None
    stage: str
    done: float
    problem: str
    figures: Mapping[str, object]
    all_moves: int
    moves: tuple[ProposedMove, ...]


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """How far a plan is; `result` is set in the end."""

    plan: int
    stage: str
    done: float
    result: PlacementPlan | None


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What became of a plan's moves when it was applied; those passed over make no sense any more, or are on the way."""

    plan: int
    moves: int
    bytes: float
    passed_over: int
    applied_s: float


def imported_from_proto(message: messages.ImportWarehouseResponse) -> ImportedWarehouse:
    return ImportedWarehouse(
        message.tables,
        message.new_tables,
        message.changed_tables,
        message.dropped_tables,
        message.partitions,
        message.readers,
        message.reads,
        message.revision,
        tuple(message.remarks),
    )


def table_from_proto(message: messages.TableRecord) -> WarehouseTable:
    return WarehouseTable(
        message.table,
        message.namespace,
        message.tenant,
        message.size_bytes,
        message.home,
        tuple(
            TableCopy(
                copy.region,
                copy.complete_until_s if copy.HasField("complete_until_s") else None,
                copy.partitions if copy.HasField("partitions") else None,
                copy.newest_partitions if copy.HasField("newest_partitions") else None,
            )
            for copy in message.copies
        ),
        message.partitions,
        message.last_partition_s if message.HasField("last_partition_s") else None,
    )


def explanation_from_proto(message: messages.TableExplanation) -> TableExplanation:
    return TableExplanation(
        table_from_proto(message.table),
        tuple(
            TableReader(
                reader.reader,
                reader.kind,
                reader.gpu_model,
                reader.priority,
                reader.gpu_hours,
                reader.cpu_hours,
                reader.other_tables,
                reader.hint,
            )
            for reader in message.readers
        ),
        message.all_readers,
        tuple(map(_proposed_from_proto, message.proposed)),
        tuple(map(move_from_proto, message.moves)),
        _community_from_proto(message.community) if message.HasField("community") else None,
    )


def _community_from_proto(message: messages.TableCommunity) -> TableCommunity:
    return TableCommunity(
        message.plan,
        message.name,
        message.tables,
        message.bytes,
        message.jobs,
        message.gpu_hours,
        tuple(message.largest_tables),
        tuple(message.namespaces),
        tuple(message.strongest_jobs),
        {one.region: one.share for one in message.before},
        {one.region: one.share for one in message.after},
        message.sentence,
    )


def move_from_proto(message: messages.TableMove) -> TableMove:
    return TableMove(
        message.move,
        message.table,
        message.source,
        message.target,
        message.kind,
        message.state,
        message.size_bytes,
        message.copied_bytes,
        message.planned_s,
        message.deadline_s if message.HasField("deadline_s") else None,
        message.ended_s if message.HasField("ended_s") else None,
        message.reason,
        message.plan,
        message.newest_partitions if message.HasField("newest_partitions") else None,
        message.to_copy_bytes,
    )


def settings_to_proto(choices: PlacementChoices | None) -> messages.PlacementSettings:
    """The message to send; raises InvalidArgumentError for values of wrong types."""
    if choices is None:
        return messages.PlacementSettings()
    if not isinstance(choices, PlacementChoices):
        raise refused("choices", f"must be PlacementChoices, not {shown(choices)}")
    return message_of(
        messages.PlacementSettings,
        solver=choices.solver or "",
        preset=choices.preset or "",
        time_limit_s=choices.time_limit_s,
        quota_bytes=choices.quota_bytes,
        keep_to_links=choices.keep_to_links,
        home_training_share=choices.home_training_share,
        replicas=choices.replicas,
        disaster_copies=choices.disaster_copies,
        spare_hardware=choices.spare_hardware,
        hot_storage_share=choices.hot_storage_share,
        partition_copies=choices.partition_copies,
        correlated_failures=message_list(
            "correlated_failures", tuple, choices.correlated_failures or (), _correlated_failure_to_proto
        ),
        spare_gpu_shares=[
            message_of(messages.SpareGpuShare, region=region, share=share)
            for region, share in mapping("spare_gpu_shares", choices.spare_gpu_shares or {}).items()
        ],
        bound=choices.bound,
        seed=choices.seed,
    )


def link_to_proto(link: object, bytes_per_day: float) -> messages.RegionLink:
    """What can be copied in a day between two regions; raises InvalidArgumentError for what is no such link."""
    if not isinstance(link, tuple) or len(link) != 2:
        raise refused("link_bytes_per_day", f"must have pairs of regions (from, to) as keys, not {shown(link)}")
    source, target = link
    return message_of(messages.RegionLink, source=source, target=target, bytes_per_day=bytes_per_day)


def _correlated_failure_to_proto(failure: tuple[str, str, float]) -> messages.CorrelatedFailure:
    if len(failure) != 3:
        raise refused("probability", f"must be two regions and a probability, not {shown(failure)}")
    region, other, probability = failure
    return message_of(messages.CorrelatedFailure, region=region, other=other, probability=probability)


def progress_from_proto(message: messages.PlacementPlanProgress) -> PlanProgress:
    result = plan_from_proto(message.result) if message.HasField("result") else None
    return PlanProgress(message.plan, message.stage, message.done, result)


def plan_from_proto(message: messages.PlacementPlan) -> PlacementPlan:
    return PlacementPlan(
        message.plan,
        message.state,
        message.asked_s,
        message.ended_s if message.HasField("ended_s") else None,
        message.applied_s if message.HasField("applied_s") else None,
        message.stage,
        message.done,
        message.problem,
        json.loads(message.figures) if message.figures else {},
        message.all_moves,
        tuple(map(_proposed_from_proto, message.moves)),
    )


def applied_from_proto(message: messages.ApplyPlacementPlanResponse) -> AppliedPlan:
    return AppliedPlan(message.plan, message.moves, message.bytes, message.passed_over, message.applied_s)


def _proposed_from_proto(message: messages.ProposedMove) -> ProposedMove:
    return ProposedMove(
        message.plan,
        message.table,
        message.source,
        message.target,
        message.kind,
        message.size_bytes,
        message.reason,
        message.newest_share if message.HasField("newest_share") else None,
    )
