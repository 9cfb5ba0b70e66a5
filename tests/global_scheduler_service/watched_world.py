"""Workloads of every kind that there is something to see of, stored as services store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster_manager.attempt_run.actions import RecordEnd
from domain.dependencies import dependency_of
from domain.identifiers import WorkloadId
from domain.life_cycle import State
from domain.notification import Notification
from domain.sensitivity import SensitivityProfile
from domain.workload import WorkloadSpecification
from services.database import attempt_store, fleet_store, profile_store, queue_store, sensitivity_store
from services.database.connection import AnyConnection
from services.database.profile_store import ReportedProfile
from services.database.queue_store import RankedEntries
from services.database.requeue_store import RequeuedEntry
from services.database.workload_store import NewWorkload
from services.global_scheduler.workload_look import WorkloadLook
from services.tuned_work import names_of_profiles
from services.wire.workloads import specification_to_proto
from tests.database.small_world import FLEET, dispatch, new_attempt, specification, submit

KINDS = ("ranked", "unranked", "live", "again", "ended", "held", "waits", "array", "array-over", "told", "missing")
_REVISION = 1
"""Of the profiles, when attempts begin."""

LOOK = WorkloadLook(lambda workload: f"{workload} is within its quota.")


def name_of(kind: str, copy: int) -> WorkloadId:
    return WorkloadId(f"w-{kind}-{copy:03}")


async def store_world(connection: AnyConnection, copies: int) -> list[WorkloadId]:
    """So many workloads of each kind; the names of all, and of some that there are not."""
    await fleet_store.apply_fleet(connection, FLEET)
    (profile_names,) = names_of_profiles(_specification("live", 0)).values()
    profile = SensitivityProfile((1.0, 24.0), (0.1, 1000.0), ((1.0, 1.0), (24.0, 24.0)))
    assert await sensitivity_store.store_profiles(connection, {profile_names[0]: profile}) == _REVISION
    for copy in range(copies):
        await submit(connection, [_stored(kind, copy) for kind in KINDS if kind != "missing"])
        names = {kind: name_of(kind, copy) for kind in KINDS}
        first = f"{names['array-over']}-000000"
        await _run(connection, [names["live"], names["again"], names["ended"], WorkloadId(first)])
        ends = [(names["ended"], State.COMPLETED), (WorkloadId(first), State.FAILED)]
        await attempt_store.record_ends(connection, [_end(name, state) for name, state in ends], {})
        back = {names["again"]: RequeuedEntry("A100", 8, 0.0)}
        await attempt_store.record_ends(connection, [_end(names["again"], State.PENDING)], back)
        await _run(connection, [names["again"]], attempt=2)
        progress = attempt_store.AttemptProgress(new_attempt(names["live"]).key, 7.0 + copy, 5.0, 1.5)
        await attempt_store.record_progress(connection, [progress])
        ranked = [names["ranked"], names["told"]]
        entries = RankedEntries(ranked, [2, 1], [0, 0], [0.5, -0.25 * copy], [True, copy % 2 == 0])
        assert len(await queue_store.store_ranks(connection, entries)) == len(ranked)
    report = ReportedProfile(
        name_of("ranked", 0), specification().tenant, "ranked", specification().jobs[0].name, 70.0, 100.0
    )
    await profile_store.record_profiles(connection, [report], 10.0)
    return [name_of(kind, copy) for copy in range(copies) for kind in KINDS]


def _specification(kind: str, copy: int) -> WorkloadSpecification:
    plain = specification(name=kind, tasks=2 if kind in ("ranked", "told") else 1, emulated=kind != "live")
    match kind:
        case "held":
            return replace(plain, hold=True)
        case "waits":
            return replace(plain, after=(dependency_of(f"ok:{name_of('array', copy)}"),))
        case "array":
            return replace(plain, array="0-3%2")
        case "array-over":
            return replace(plain, array="0-0")
        case "told":
            return replace(plain, notify=Notification("https://example.org/told"))
        case _:
            return plain


def _stored(kind: str, copy: int) -> NewWorkload:
    wanted = _specification(kind, copy)
    serialized = specification_to_proto(wanted).SerializeToString()
    return NewWorkload(name_of(kind, copy), wanted, serialized, 1000.0 + copy, None, None)


async def _run(connection: AnyConnection, names: Sequence[WorkloadId], attempt: int = 1) -> None:
    attempts = [replace(new_attempt(name, attempt), profiles_revision=_REVISION) for name in names]
    await dispatch(connection, *attempts)
    await attempt_store.record_started(connection, [(one.key, one.dispatched_s + 1.0) for one in attempts])


def _end(name: WorkloadId, state: State) -> RecordEnd:
    return RecordEnd(
        new_attempt(name).key, "preempted" if state is State.PENDING else state.lower(), "", 2400.0, 5.0, 4.0, state
    )
