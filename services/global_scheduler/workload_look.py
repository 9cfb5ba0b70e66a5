"""Workloads as people see them, one or many: what is loaded of them in one snapshot, and the message that says it.

What is loaded is plain values: whoever looks again compares them, and makes a message only of what is another now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from domain.fleet import Machine
from domain.identifiers import JobName, WorkloadId
from domain.model_profile import KnownSkew
from domain.workload import WorkloadSpecification
from formats.scheduler_file import NO_ELASTIC, NO_TUNING, PlacementSection
from services.database import fleet_store, notification_store, queue_store, sensitivity_store, workload_reader
from services.database.connection import AnyConnection
from services.database.notification_store import NotificationState
from services.database.packlimit_store import load_packlimit
from services.database.profile_store import NamedWorkload, known_skews
from services.database.sensitivity_store import StoredProfile
from services.database.workload_reader import AttemptRecord, StoredWorkload
from services.global_scheduler.array_look import SeenArray, array_message, load_arrays
from services.global_scheduler.consolidations import consolidations, has_consolidations
from services.global_scheduler.growth_remarks import growth_remarks
from services.global_scheduler.job_tunings import job_tunings, machines_of
from services.global_scheduler.region_diagnoses import region_diagnoses
from services.global_scheduler.why_pending import why_pending
from services.global_scheduler.workload_messages import NOT_RANKED, notification_message, workload_message
from services.tuned_work import names_of_profiles
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True)
class TuningBasis:
    """By what the CPUs and memory of a live attempt are judged."""

    machines: tuple[Machine, ...]
    profiles: tuple[StoredProfile, ...]


@dataclass(frozen=True, slots=True)
class SkewBasis:
    """By what it is judged whether jobs of several tasks are consolidated."""

    known: Mapping[JobName, KnownSkew]
    packlimit: float


@dataclass(frozen=True, slots=True)
class SeenWorkload:
    """All that the message of a workload says."""

    stored: StoredWorkload
    specification: WorkloadSpecification = field(compare=False)
    """As the stored bytes say it, which are compared."""
    rank: int
    why_pending: str
    attempts: tuple[AttemptRecord, ...]
    tuning: TuningBasis | None
    """None: no attempt is live."""
    skew: SkewBasis | None
    """None: no job has several tasks with GPUs."""
    notification: NotificationState | None


Seen: TypeAlias = SeenWorkload | SeenArray

_COUNTED_FOR_ONE = 16
"""So many rows are counted while one is converted."""

_BYTES_FOR_ONE = 256
"""So many bytes of a specification are read for as much as a row."""


def rows_of(seen: Seen | None) -> int:
    """What it costs to look again, in rows that are converted; None: that is not known yet."""
    match seen:
        case SeenWorkload():
            placements = sum([len(attempt.placements) for attempt in seen.attempts])
            return placements + len(seen.stored.specification) // _BYTES_FOR_ONE
        case SeenArray():
            return sum(seen.counts.states.values()) // _COUNTED_FOR_ONE
        case None:
            return 0


class WorkloadLook:
    """Loads what there is to see, and says it in messages."""

    def __init__(
        self,
        explain: Callable[[WorkloadId], str],
        placement: PlacementSection | None = None,
        tuning: str = NO_TUNING,
        elastic: str = NO_ELASTIC,
    ) -> None:
        """`explain` says why the last scan pass put a workload within or over its quota; empty: it did not see it.
        `placement` None: the defaults. `tuning`: what shares out CPUs and memory, `elastic`: what gives jobs more tasks."""
        self._explain = explain
        self._placement = placement or PlacementSection()
        self._tuning = tuning
        self._elastic = elastic

    def remarks(self, specification: workload_pb2.WorkloadSpecification) -> list[str]:
        """What is asked for and is not done as things are configured."""
        return growth_remarks(specification, self._elastic)

    # ------------------------------------------------------------ what there is

    async def load(
        self, connection: AnyConnection, names: Collection[WorkloadId], before: Mapping[WorkloadId, Seen] | None = None
    ) -> dict[WorkloadId, Seen]:
        """Those of the names that are workloads or arrays, in as many queries for many as for one.

        Wants a snapshot, so that states, ranks and counts agree. `before`: what an earlier look saw; its specifications need
        not be read again.
        """
        stored = await workload_reader.get_all(connection, names)
        specifications = {name: _specification_of(one, (before or {}).get(name)) for name, one in stored.items()}
        ranks = await queue_store.ranks_of(connection, [one.position for one in stored.values() if one.position])
        tried = [name for name, one in stored.items() if one.attempt]
        attempts = await workload_reader.load_attempts(connection, tried) if tried else {}
        live = [records[-1] for records in attempts.values() if records[-1].ended_s is None]
        tunings = await _load_tunings(connection, live, specifications)
        skews = await self._load_skews(connection, specifications)
        notified = [name for name, specification in specifications.items() if specification.notify is not None]
        notifications = await notification_store.states_of(connection, notified)
        arrays = await load_arrays(connection, [name for name in names if name not in stored])
        workloads = {
            name: SeenWorkload(
                stored=one,
                specification=specifications[name],
                rank=ranks.get(name, NOT_RANKED),
                why_pending=why_pending(one, self._explain),
                attempts=attempts.get(name, ()),
                tuning=tunings.get(name),
                skew=skews.get(name),
                notification=notifications.get(name),
            )
            for name, one in stored.items()
        }
        return {**workloads, **arrays}

    async def _load_skews(
        self, connection: AnyConnection, specifications: Mapping[WorkloadId, WorkloadSpecification]
    ) -> dict[WorkloadId, SkewBasis]:
        wanted = [
            NamedWorkload(name, specification.tenant, specification.name)
            for name, specification in specifications.items()
            if has_consolidations(specification)
        ]
        if not wanted:
            return {}
        known = await known_skews(connection, wanted)
        fixed = self._placement.fixed_packlimit
        packlimit = fixed if fixed is not None else (await load_packlimit(connection)).limit
        return {one.workload: SkewBasis(known.get(one.workload, {}), packlimit) for one in wanted}

    async def message_in_full(self, connection: AnyConnection, workload: WorkloadId) -> workload_pb2.Workload | None:
        """Of one that waits also what each region says of it, and who holds what it could use there. None: there is none of that
        name."""
        seen = (await self.load(connection, [workload])).get(workload)
        if seen is None:
            return None
        message = self.message(seen)
        if isinstance(seen, SeenWorkload) and message.queue_position.HasField("diagnosis") and seen.stored.diagnosis:
            said = await region_diagnoses(connection, seen.stored.diagnosis, workload, message.specification)
            message.region_diagnoses.extend(said)
        return message

    # ------------------------------------------------------------ how it is said

    def message(self, seen: Seen) -> workload_pb2.Workload:
        """The workload with its attempts, or the array."""
        if isinstance(seen, SeenArray):
            return array_message(seen.first, seen.array, seen.counts)
        message = workload_message(seen.stored, seen.rank, seen.why_pending, seen.attempts)
        if seen.tuning is not None:
            message.attempts[-1].tunings.extend(
                job_tunings(
                    seen.specification, seen.attempts[-1], seen.tuning.machines, seen.tuning.profiles, self._tuning
                )
            )
        if seen.skew is not None:
            trial_s = self._placement.trial_s
            message.consolidations.extend(
                consolidations(seen.specification, seen.skew.known, seen.skew.packlimit, trial_s)
            )
        if seen.notification is not None:
            message.notification.CopyFrom(notification_message(seen.notification))
        if not message.ended_s:
            message.remarks.extend(self.remarks(message.specification))
        return message


def _specification_of(stored: StoredWorkload, before: Seen | None) -> WorkloadSpecification:
    if isinstance(before, SeenWorkload) and before.stored.specification == stored.specification:
        return before.specification
    return specification_from_proto(workload_pb2.WorkloadSpecification.FromString(stored.specification))


async def _load_tunings(
    connection: AnyConnection,
    live: Collection[AttemptRecord],
    specifications: Mapping[WorkloadId, WorkloadSpecification],
) -> dict[WorkloadId, TuningBasis]:
    """By workload, for these attempts."""
    held = {attempt.key.workload: machines_of(attempt) for attempt in live}
    names = {
        attempt.key.workload: _profile_names(specifications[attempt.key.workload])
        for attempt in live
        if attempt.profiles_revision and held[attempt.key.workload]
    }
    named = {name for each in held.values() for name in each}
    machines = (
        {one.machine: one for one in await fleet_store.machines_named(connection, sorted(named))} if named else {}
    )
    wanted = {name for each in names.values() for name in each}
    profiles: dict[str, list[StoredProfile]] = {}
    for one in await sensitivity_store.load_named(connection, wanted) if wanted else ():
        profiles.setdefault(one.name, []).append(one)
    return {
        workload: TuningBasis(
            tuple(machines[name] for name in each if name in machines),
            tuple(one for name in names.get(workload, ()) for one in profiles.get(name, ())),
        )
        for workload, each in held.items()
    }


def _profile_names(specification: WorkloadSpecification) -> Iterable[str]:
    return sorted({name for of_job in names_of_profiles(specification).values() for name in of_job})
