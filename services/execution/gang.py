"""The tasks of one attempt, through their runners: all are reserved, started, watched and stopped together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from domain.identifiers import JobName
from domain.placement import TaskPlacement
from domain.placement_changes import flexible_among, name_of
from domain.plan import TaskName
from domain.workload import Emulated
from services.execution.background_tasks import BackgroundTasks
from services.execution.environment_preparation import BUILD_TIMEOUT_S
from services.execution.executor import AttemptOrder, JobRendezvous
from services.execution.gang_member import NOT_STARTED, Member
from services.execution.gang_outcome import TaskEnd
from services.execution.memory_watch import MemorySettings
from services.execution.runner_messages import RunnerDescription, StopCause, TaskStart
from services.execution.runner_pool import RunnerHandle, RunnerLost, RunnerPool
from services.execution.task_environment import Rendezvous, tasks_everywhere, tasks_of_job
from services.execution.task_user import TaskSettings
from services.execution.working_directory import Unprepared
from services.storage.store_urls import StoreUrls

_RUNNER_GONE = "its runner is gone"


class NoRendezvous(RunnerLost):
    """The first task of a job is in another cluster, and it is not known where."""


@dataclass(frozen=True, slots=True)
class GangStart:
    """What all tasks of the gang are started with."""

    session_address: str
    started_s: float
    home: Path
    stores: StoreUrls
    memory: MemorySettings = MemorySettings()
    tasks: TaskSettings = TaskSettings()
    session_token: str = field(default="", repr=False)
    session_authority: str = ""
    """PEM: whose certificate the cluster manager shows; empty: it is called in plain text."""


@dataclass(frozen=True, slots=True)
class GangLimits:
    """In real seconds: how long tasks may wait for their places (predecessors may still be saving their checkpoints
    there), how long the other tasks have when one has failed, and how long their environments may be built. `allowed_s`: how long tasks may run on from now if nothing
    more is heard of their cluster's lease.
    """

    reservation_s: float
    failure_grace_s: float
    allowed_s: Callable[[], float] = lambda: math.inf
    build_timeout_s: float = BUILD_TIMEOUT_S


class Gang:
    """Calls `broken` when a task failed or was lost before it was asked to stop; the others are stopped then. When it is a
    flexible one that was killed or lost while the gang runs, they go on: `missing` names it, and `lost` is called. `saved` is called
    when `saved_progress` may have grown.

    `all_over` is set when no task is left that could still run; `broken` when one failed or was lost by itself.
    """

    def __init__(
        self,
        order: AttemptOrder,
        pool: RunnerPool,
        limits: GangLimits,
        broken: Callable[[], None],
        lost: Callable[[], None],
        saved: Callable[[], None],
    ) -> None:
        self.order = order
        self.all_over = asyncio.Event()
        self.broken = asyncio.Event()
        self._pool = pool
        self._limits = limits
        self._tell_broken = broken
        self._tell_lost = lost
        self._tell_saved = saved
        self._stopping = False
        self._start: GangStart | None = None
        self._members: dict[tuple[JobName, int], Member] = {}
        self._resizing = asyncio.Lock()
        self._background = BackgroundTasks()

    @staticmethod
    def adopted(
        descriptions: Iterable[tuple[RunnerHandle, RunnerDescription]],
        pool: RunnerPool,
        limits: GangLimits,
        broken: Callable[[], None],
        lost: Callable[[], None],
        saved: Callable[[], None],
    ) -> Gang:
        """The gang that these runners are the rest of; the newest order that one of them has says which are missing."""
        found = list(descriptions)
        newest = max((description.order for _, description in found), key=lambda order: order.revision)
        gang = Gang(newest, pool, limits, broken, lost, saved)
        for placement in processes_of(newest):
            gang._members[placement.job, placement.task] = Member(placement, None, lost=_RUNNER_GONE)
        for handle, description in found:
            placement = description.placement
            member = Member(placement, handle, description.report, there=True, clock_s=description.clock_s)
            member.released = (placement.job, placement.task) not in gang._members
            gang._members[placement.job, placement.task] = member
        return gang

    @property
    def whole(self) -> bool:
        """No runner is missing."""
        return not any(member.lost for member in self._members.values())

    @property
    def untouched(self) -> bool:
        """None of its tasks was ever started."""
        return all(member.lost or member.report == NOT_STARTED for member in self._members.values())

    @property
    def asked_to_stop(self) -> bool:
        """All of it was asked to stop, and some of it has not ended yet."""
        going = [member for member in self._members.values() if not member.over and not member.released]
        return any(member.report.stop_cause is StopCause.ASKED for member in going)

    @property
    def idle(self) -> bool:
        """Every task has ended, or its runner is missing."""
        return all(member.over for member in self._members.values())

    @property
    def started_s(self) -> float:
        """When its tasks were started; 0 when they were not."""
        return max((member.report.started_s for member in self._members.values()), default=0.0)

    @property
    def saved_progress(self) -> float:
        """What its tasks have in the store of checkpoints, as far as their runners have told."""
        return max((member.report.saved_progress for member in self._members.values()), default=0.0)

    @property
    def missing(self) -> tuple[TaskName, ...]:
        """The flexible tasks without which the attempt has to go on, sorted."""
        return tuple(sorted(name_of(member.placement) for member in self._members.values() if member.missing))

    def ends(self) -> list[TaskEnd]:
        """How each task ended, by job and task; only when all are over.

        Of a missing task only where others have ended badly as well, for which it may be the cause.
        """
        members = [member for _, member in sorted(self._members.items()) if not member.released]
        others = [member for member in members if not member.missing]
        blamed = members if any(member.end.failed for member in others) else others
        return [member.end for member in blamed]

    async def reserve(self) -> None:
        """Makes the runners, waits until all are there, and watches them: every task has its place.

        Raises RunnerLost when that is impossible.
        """
        await self._reserve(processes_of(self.order))
        self._note_if_all_over()

    async def fetch_files(self, home: Path, stores: StoreUrls) -> tuple[TaskPlacement, Unprepared] | None:
        """The files that its tasks begin with are on every machine; or a task without them, and why. Raises RunnerLost."""
        members = [member for _, member in sorted(self._members.items()) if not member.over and not member.released]
        handles = [(member.placement, member.handle) for member in members if member.handle is not None]
        found = await asyncio.gather(*(handle.fetch_files(home, stores) for _, handle in handles))
        missing = [(placement, why) for (placement, _), why in zip(handles, found, strict=True) if why is not None]
        return missing[0] if missing else None

    def watch_adopted(self, start: GangStart) -> None:
        """Sends every adopted task the cluster manager's present address, and watches it.

        If one of them was started, those that were not are started too: the gang runs as a whole.
        """
        for member in list(self._members.values()):
            if member.handle is not None:
                self._background.spawn(self._tell(member, member.handle.move_session(start.session_address)))
            if member.released:
                self._release(member)
            self._background.spawn(self._watch(member))
        self._note_if_all_over()
        if not self.untouched:
            self._start = start
            waiting = [member for member in self._members.values() if member.report == NOT_STARTED and not member.lost]
            self._background.spawn(self._start_members(waiting))

    async def prepare(self, home: Path) -> bool:
        """Gets ready what the tasks run in; False when that is not possible somewhere: then the gang is over soon."""
        await self._prepare(list(self._members.values()), home)
        return not any(member.end.failed for member in self._members.values() if member.over)

    async def start(self, start: GangStart) -> bool:
        """Starts every task that was not started yet; False when not all of them could be."""
        self._start = start
        if self.prepares:
            # That may have taken long, also elsewhere: their clocks were asked before.
            await self._ask_clocks(list(self._members.values()))
        members = [member for member in self._members.values() if not member.released]
        await self._start_members(members)
        return all(member.report.started_s > 0 for member in members)

    async def rendezvous(self) -> tuple[JobRendezvous, ...]:
        """Where those jobs meet that have their first task here and others in other clusters. Raises RunnerLost."""
        found: list[JobRendezvous] = []
        for job in self.order.jobs_here():
            here = tasks_of_job(self.order, job.name)
            if (
                job.across_clusters
                and len(here) < job.tasks
                and here[0].task == 0
                and here[0] in processes_of(self.order)
            ):
                address, port = astuple(await self._rendezvous_of(job.name))
                found.append(JobRendezvous(job.name, address, port))
        return tuple(found)

    def learn_rendezvous(self, rendezvous: tuple[JobRendezvous, ...]) -> None:
        """Where the jobs meet whose first task is in another cluster."""
        self.order = replace(self.order, rendezvous=rendezvous)

    def stop(self, grace_s: float, cause: StopCause) -> None:
        """Stops every task; `all_over` is set when it is done. Repeating can only shorten the grace."""
        self._stopping = True
        for member in self._members.values():
            self._background.spawn(self._stop(member, grace_s, cause))

    async def resize(self, order: AttemptOrder) -> bool:
        """Releases the tasks that are not placed any more, adds the new ones, and sends all of them the new placements.

        Returns when that is done: those released are gone, those added run, and all know. False when the gang ends.
        """
        async with self._resizing:
            if self._stopping or self.all_over.is_set():
                return False
            self.order = order
            wanted = {(placement.job, placement.task): placement for placement in processes_of(order)}
            for name, member in list(self._members.items()):
                if name in wanted and not member.released:
                    member.placement = wanted[name]
                elif member.missing:
                    await member.gone.wait()
                    del self._members[name]
                elif not member.released:
                    self._release(member)
            await self._add([placement for name, placement in wanted.items() if self._is_new(name)])
            await asyncio.gather(
                *(
                    self._tell(member, member.handle.reorder(order))
                    for member in list(self._members.values())
                    if member.handle is not None and not member.over
                )
            )
            await asyncio.gather(*(member.gone.wait() for member in list(self._members.values()) if member.released))
        self._note_if_all_over()
        return not self._stopping

    async def allow(self) -> None:
        """Tells every task that runs how long it may run on; those that cannot be reached stop themselves in time."""
        going = [member for member in self._members.values() if member.there and not member.over]
        await asyncio.gather(*(self._allow(member) for member in going))

    async def _allow(self, member: Member) -> None:
        for_s = self._limits.allowed_s()
        if member.handle is None or for_s <= 0:
            return
        try:
            member.clock_s = await member.handle.allow(member.clock_s, for_s)
        except RunnerLost as lost:
            member.lost = member.lost or str(lost)

    def runner_of(self, job: JobName, task: int) -> RunnerHandle | None:
        """None where the task is over, or has no runner."""
        member = self._members.get((job, task))
        return None if member is None or member.over else member.handle

    def close(self) -> None:
        """Stops looking; the tasks go on."""
        self._background.close()

    def _is_new(self, name: tuple[JobName, int]) -> bool:
        return name not in self._members or self._members[name].released

    async def _add(self, placements: list[TaskPlacement]) -> None:
        for placement in placements:
            leaving = self._members.get((placement.job, placement.task))
            if leaving is not None:
                await leaving.gone.wait()
        try:
            await self._reserve(placements)
        except RunnerLost:
            # The watches of the new members have seen it, or see it soon; they stop the gang.
            return
        if self._start is not None and not self._stopping:
            added = [self._members[placement.job, placement.task] for placement in placements]
            await self._prepare(added, self._start.home)
            await self._start_members(added)

    @property
    def prepares(self) -> bool:
        """Whether anything has to be got ready."""
        return any(job.runtime is not None for job in self.order.specification.jobs)

    async def _prepare(self, members: list[Member], home: Path) -> None:
        """How it went, the watch of each member sees too."""
        if self.prepares:
            await asyncio.gather(*(self._prepare_member(member, home) for member in members))
            await self._ask_clocks(members)

    async def _prepare_member(self, member: Member, home: Path) -> None:
        if member.handle is not None and not member.over:
            try:
                member.take(await member.handle.prepare(home, self._limits.build_timeout_s))
            except RunnerLost as lost:
                member.lost = member.lost or str(lost)

    async def _ask_clocks(self, members: list[Member]) -> None:
        try:
            await asyncio.gather(*(_await_runner(member) for member in members if not member.over))
        except RunnerLost:
            # Whose runner it is, its watch has seen.
            return

    async def _reserve(self, placements: list[TaskPlacement]) -> None:
        if not placements:
            return
        handles = await self._pool.create(self.order, placements)
        members = [Member(placement, handle) for placement, handle in zip(placements, handles, strict=True)]
        for member in members:
            self._members[member.placement.job, member.placement.task] = member
            self._background.spawn(self._watch(member))
        try:
            async with asyncio.timeout(self._limits.reservation_s):
                await asyncio.gather(*(_await_runner(member) for member in members))
        except TimeoutError:
            missing = [member for member in members if not member.there]
            for member in missing:
                await self._remove(member)
            machines = ", ".join(sorted({member.placement.machine for member in missing}))
            waited_s = self._limits.reservation_s
            raise RunnerLost(f"no place on {machines} within {waited_s:g} s") from None

    async def _start_members(self, members: list[Member]) -> None:
        rendezvous: dict[JobName, Rendezvous] = {}
        try:
            for job in sorted({member.placement.job for member in members}):
                rendezvous[job] = await self._rendezvous_of(job)
            await asyncio.gather(*(self._start_member(member, rendezvous[member.placement.job]) for member in members))
        except NoRendezvous:
            # After a restart in the very moment of the start nobody says it again: the attempt ends and is tried anew.
            self.stop(0.0, StopCause.GANG)
        except RunnerLost:
            # Whose runner it is, its watch has seen; that one stops the others.
            return

    async def _rendezvous_of(self, job: JobName) -> Rendezvous:
        first = tasks_of_job(self.order, job)[0]
        if first.task != tasks_everywhere(self.order, job)[0]:
            told = next((one for one in self.order.rendezvous if one.job == job), None)
            if told is None:
                raise NoRendezvous(f"nobody says where the tasks of job {job} meet")
            return Rendezvous(told.address, told.port)
        handle = self._members[job, first.task].handle
        if handle is None:
            raise RunnerLost(_RUNNER_GONE)
        return await handle.rendezvous()

    async def _start_member(self, member: Member, rendezvous: Rendezvous) -> None:
        start = self._start
        if member.handle is not None and start is not None:
            allowed_until_s = member.clock_s + self._limits.allowed_s()
            member.take(
                await member.handle.start(
                    TaskStart(
                        rendezvous,
                        start.session_address,
                        start.started_s,
                        start.home,
                        start.stores,
                        allowed_until_s,
                        start.memory,
                        start.tasks,
                        start.session_token,
                        start.session_authority,
                    )
                )
            )

    async def _watch(self, member: Member) -> None:
        """Waits for the end of a task, and does what follows from it."""
        while member.handle is not None and not member.over:
            try:
                member.take(await member.handle.report_after(member.report.version))
                self._tell_saved()
            except RunnerLost as lost:
                member.lost = str(lost)
        if member.lost and self._start is not None:
            await self._settle(member)
        if member.end.failed and not member.released and self._goes_on_without(member):
            member.missing = True
            self._tell_lost()
        elif member.end.failed and not member.released:
            asked_before = self._stopping
            self.stop(self._limits.failure_grace_s, StopCause.GANG)
            if not asked_before:
                self.broken.set()
                self._tell_broken()
        if member.lost or member.released or member.missing:
            # What cannot be talked to may still be there.
            await self._remove(member)
        if member.released:
            del self._members[member.placement.job, member.placement.task]
        member.gone.set()
        self._note_if_all_over()

    async def _settle(self, member: Member) -> None:
        """Nothing of it runs any more; if it had ended before its runner was lost, that is its end."""
        journaled = await self._pool.settle(self.order, member.placement)
        end = journaled.end(all_here=self._all_here) if journaled is not None else None
        if end is not None:
            member.lost = ""
            member.report = replace(end, version=max(end.version, member.report.version + 1))

    @property
    def _all_here(self) -> bool:
        stores = self._start.stores if self._start is not None else None
        return stores is not None and not stores.checkpoints and not stores.logs

    def _goes_on_without(self, member: Member) -> bool:
        """Whether the gang runs as a whole, and can do so without this task."""
        is_flexible = flexible_among(self.order.specification, [name_of(member.placement)])
        return is_flexible and member.was_killed and self._start is not None and not self._stopping

    def _note_if_all_over(self) -> None:
        over = all(member.gone.is_set() for member in self._members.values())
        if over and not self._resizing.locked():
            self.all_over.set()

    async def _stop(self, member: Member, grace_s: float, cause: StopCause) -> None:
        if member.handle is None or member.over:
            return
        if member.there:
            await self._tell(member, member.handle.stop(grace_s, cause))
        else:
            # It has no place yet, and may never get one.
            member.released = True
            await self._remove(member)

    async def _remove(self, member: Member) -> None:
        await self._pool.remove_task(self.order.key, member.placement.job, member.placement.task)

    async def _tell(self, member: Member, call: Coroutine[object, object, None]) -> None:
        try:
            await call
        except RunnerLost as lost:
            # Its watch sees the same; the first of the two says why.
            member.lost = member.lost or str(lost)

    def _release(self, member: Member) -> None:
        member.released = True
        self._background.spawn(self._stop(member, self.order.specification.stop_grace_s, StopCause.RELEASED))


async def _await_runner(member: Member) -> None:
    if member.handle is not None:
        member.clock_s = (await member.handle.describe()).clock_s
        member.there = True


def processes_of(order: AttemptOrder) -> list[TaskPlacement]:
    """The placements that need a process: those of jobs that are not emulated, in the order's order."""
    from_jobs = {job.name for job in order.jobs_here() if not isinstance(job.entry_point, Emulated)}
    return [placement for placement in order.placements if placement.job in from_jobs]
