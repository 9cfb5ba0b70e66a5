"""Task runners as Ray actors: where they are made, found again, called and removed. All of Ray's API is used here.

A machine of the fleet is a custom resource `machine:<name>` of the Ray node on which its tasks run, or it is part of
EVERY_MACHINE, which a local service's one node offers: Ray settles a node's resources when that starts, so machines that
are added later cannot have names there. An attempt's tasks are one placement group with a bundle of one slot per task, so
the gang gets its places together or not at all, on exactly the planned machines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import ray
import structlog
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from domain.identifiers import ClusterId, JobName, MachineId
from domain.placement import AttemptKey, TaskPlacement
from services.execution.executor import AttemptOrder
from services.execution.left_behind import OthersOfCluster, end_left_behind
from services.execution.ray_nodes import answers_of_nodes
from services.execution.runner_messages import RunnerDescription, RunnerReport, StopCause, TaskStart
from services.execution.session_frames import SessionDoor, SessionPurpose, SessionRefused
from services.execution.settling import Journaled, settle_task
from services.execution.task_environment import Rendezvous
from services.execution.task_journal import JournaledTask, journaled_tasks
from services.execution.task_paths import escaped
from services.execution.task_runner import TaskRunnerActor
from services.execution.working_directory import Unprepared
from services.storage.store_urls import StoreUrls

_log = structlog.get_logger(__name__)

NAMESPACE = "topmast"
TASK_SLOTS = 1e9
"""How many tasks a node can have at once as far as Ray is concerned; how many it should have is decided elsewhere."""

EVERY_MACHINE = "machine:*"
"""The custom resource with which a Ray node offers all machines of the fleet, those to come too, except those that a
node offers by name. No machine can be called so."""

_RETRY_S = 0.05
_NAME_FREE_S = 10.0
_REMOVE_AGAIN_S = 1.0

AnswerT = TypeVar("AnswerT")


class RunnerLost(Exception):
    """The runner is gone, and with it the task's process; the message says what Ray knows of it."""


def reason_of(error: RayError) -> str:
    """In one line what became of a runner; of an exception of the runner's own code, which Ray hands on, that exception."""
    if isinstance(error, RayTaskError) and error.cause is not None:
        return f"its runner failed: {type(error.cause).__name__}: {error.cause}"
    return str(error).splitlines()[0]


def machine_resource(machine: MachineId) -> str:
    return f"machine:{machine}"


@dataclass(frozen=True, slots=True)
class OfferedMachines:
    """The machines that living Ray nodes offer: these by name, and with `every` all others too."""

    named: frozenset[MachineId] = frozenset()
    every: bool = False

    def __contains__(self, machine: MachineId) -> bool:
        return self.every or machine in self.named

    def resource_of(self, machine: MachineId) -> str:
        """The resource of which the machine's tasks take slots. One that is offered by none is waited for by its name."""
        return EVERY_MACHINE if self.every and machine not in self.named else machine_resource(machine)


@dataclass(frozen=True, slots=True)
class RunnerHandle:
    """The way to one task's runner. Every call raises RunnerLost when it is gone, and waits while it is starting."""

    name: str
    actor: Any = field(repr=False, compare=False)
    """Ray's handle: it has no useful type."""

    async def describe(self) -> RunnerDescription:
        return cast(RunnerDescription, await self._call("describe"))

    async def report_after(self, version: int) -> RunnerReport:
        return cast(RunnerReport, await self._call("report_after", version))

    async def rendezvous(self) -> Rendezvous:
        return cast(Rendezvous, await self._call("rendezvous"))

    async def fetch_files(self, home: Path, stores: StoreUrls) -> Unprepared | None:
        return cast("Unprepared | None", await self._call("fetch_files", home, stores))

    async def prepare(self, home: Path, within_s: float) -> RunnerReport:
        return cast(RunnerReport, await self._call("prepare", home, within_s))

    async def start(self, start: TaskStart) -> RunnerReport:
        return cast(RunnerReport, await self._call("start", start))

    async def stop(self, grace_s: float, cause: StopCause) -> None:
        await self._call("stop", grace_s, cause)

    async def allow(self, clock_s: float, for_s: float) -> float:
        return cast(float, await self._call("allow", clock_s, for_s))

    async def open_session(self, purpose: SessionPurpose) -> SessionDoor | SessionRefused:
        return cast("SessionDoor | SessionRefused", await self._call("open_session", purpose))

    async def reorder(self, order: AttemptOrder) -> None:
        await self._call("reorder", order)

    async def move_session(self, session_address: str) -> None:
        await self._call("move_session", session_address)

    async def _call(self, method: str, *arguments: object) -> object:
        while True:
            try:
                answer: object = await getattr(self.actor, method).remote(*arguments)
            except ActorUnavailableError:
                # The connection broke, the actor may be well. Every method may be repeated.
                await asyncio.sleep(_RETRY_S)
            except RayError as error:
                raise RunnerLost(reason_of(error)) from error
            else:
                return answer


class RunnerPool:
    """The runners of one cluster, by name `topmast/<cluster>/<workload>/<attempt>/<job>/<task>`.

    Ray's blocking calls are made in threads. Ray must be initialised in this process.
    """

    def __init__(self, cluster: ClusterId, home: Path | None = None) -> None:
        """`home`: where its tasks have their files; None: nothing is asked of the machines themselves."""
        self._cluster = cluster
        self._home = home
        self._prefix = f"{NAMESPACE}/{escaped(cluster)}/"
        # One thread, so that a removal that was asked for after a creation also happens after it.
        self._changes = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray-changes")
        self._queries = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ray-queries")
        self._offered: OfferedMachines | None = None
        """As Ray said last."""

    async def create(self, order: AttemptOrder, placements: Sequence[TaskPlacement]) -> tuple[RunnerHandle, ...]:
        """Runners for these tasks, in their order, in one new placement group. Does not wait until they are there."""
        return await self._in_thread(self._changes, self._create, order, tuple(placements))

    async def find(self) -> tuple[RunnerHandle, ...]:
        """Every runner of the cluster that exists, sorted by name."""
        return await self._in_thread(self._queries, self._find, lambda _: True)

    async def remove_task(self, key: AttemptKey, job: JobName, task: int) -> None:
        """Ends one runner, with whatever runs in it."""
        name = self.task_name(key, job, task)
        await self._surely(self._kill, lambda candidate: candidate == name)

    async def remove_attempts(self, keys: Iterable[AttemptKey]) -> None:
        """Ends all runners of these attempts, with whatever runs in them, and gives their places back."""
        prefixes = tuple(self._attempt_prefix(key) for key in keys)
        if prefixes:
            await self._surely(self._remove, lambda name: name.startswith(prefixes))

    async def remove_all_but(self, keys: Iterable[AttemptKey]) -> None:
        """Does so for everything of this cluster that belongs to other attempts."""
        kept = tuple(self._attempt_prefix(key) for key in keys)
        await self._surely(self._remove, lambda name: not name.startswith(kept))

    async def end_left_behind(self, kept: Iterable[AttemptKey]) -> None:
        """Ends on every machine what is left of other attempts of this cluster when their runners are gone."""
        if self._home is not None:
            concerns = OthersOfCluster(self._cluster, frozenset(kept))
            await self._on_nodes(lambda _: True, end_left_behind, self._home, concerns)

    async def settle(self, order: AttemptOrder, placement: TaskPlacement) -> JournaledTask | None:
        """Ends what is left of a task whose runner is gone; what its machine knows of its end. None also where the machine is gone."""
        if self._home is None:
            return None
        offered = self._offered or await self.offered_machines() or OfferedMachines()
        resource = offered.resource_of(placement.machine)
        answers = await self._on_nodes(lambda offers: resource in offers, settle_task, self._home, order, placement)
        return next((answer for answer in answers if answer is not None), None)

    async def journaled(self, order: AttemptOrder, placements: Sequence[TaskPlacement]) -> Journaled:
        """What is known of these tasks of an attempt that has no runners: on the machine of this process, and on all others."""
        found: Journaled = {}
        if self._home is not None:
            for answer in await self._on_nodes(lambda _: True, journaled_tasks, self._home, order, tuple(placements)):
                found |= answer
        return found

    async def offered_machines(self) -> OfferedMachines | None:
        """The machines that living Ray nodes offer; None when Ray does not say."""
        offered = await self._in_thread(self._queries, _offered_machines)
        if offered is not None:
            self._offered = offered
        return offered

    def task_name(self, key: AttemptKey, job: JobName, task: int) -> str:
        return f"{self._attempt_prefix(key)}{escaped(job)}/{task}"

    def close(self) -> None:
        for threads in (self._changes, self._queries):
            threads.shutdown(wait=False, cancel_futures=True)

    def _attempt_prefix(self, key: AttemptKey) -> str:
        return f"{self._prefix}{escaped(key.workload)}/{key.attempt}/"

    def _create(self, order: AttemptOrder, placements: tuple[TaskPlacement, ...]) -> tuple[RunnerHandle, ...]:
        offered = self._offered or _offered_machines() or OfferedMachines()
        group = placement_group(
            [{offered.resource_of(placement.machine): 1.0} for placement in placements],
            strategy="PACK",
            name=f"{self._attempt_prefix(order.key)}{order.revision}",
            lifetime="detached",
        )
        identifier = group.id.hex()
        created: list[RunnerHandle] = []
        for index, placement in enumerate(placements):
            name = self.task_name(order.key, placement.job, placement.task)
            options = {
                "name": name,
                "namespace": NAMESPACE,
                "lifetime": "detached",
                "num_cpus": 0,
                "max_restarts": 0,
                "max_concurrency": 100,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(group, index),
            }
            actor = ray.remote(TaskRunnerActor).options(**options).remote(order, placement, identifier)
            created.append(RunnerHandle(name, actor))
        return tuple(created)

    def _find(self, concerns: Callable[[str], bool]) -> tuple[RunnerHandle, ...]:
        found: list[RunnerHandle] = []
        for name in filter(concerns, self._names()):
            try:
                found.append(RunnerHandle(name, ray.get_actor(name, namespace=NAMESPACE)))
            except ValueError:
                # It ended between the two calls.
                continue
        return tuple(found)

    def _names(self) -> list[str]:
        named: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
        names = (actor["name"] for actor in named if actor["namespace"] == NAMESPACE)
        return sorted(name for name in names if name.startswith(self._prefix))

    def _remove(self, concerns: Callable[[str], bool]) -> None:
        # First the runners: Ray would kill them with their group, but only if it has one.
        self._kill(concerns)
        for identifier, group in placement_group_table().items():
            name = str(group["name"])
            if group["state"] != "REMOVED" and name.startswith(self._prefix) and concerns(name):
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(identifier))))

    def _kill(self, concerns: Callable[[str], bool]) -> None:
        """Kills runners and waits until their names are free again."""
        for handle in self._find(concerns):
            ray.kill(handle.actor, no_restart=True)
        deadline_s = time.monotonic() + _NAME_FREE_S
        while any(concerns(name) for name in self._names()) and time.monotonic() < deadline_s:
            time.sleep(_RETRY_S)

    async def _surely(self, removal: Callable[[Callable[[str], bool]], None], concerns: Callable[[str], bool]) -> None:
        """Removes again and again until Ray says that it is done: nothing may be taken for gone that is not."""
        while True:
            try:
                await self._in_thread(self._changes, removal, concerns)
            except RayError as error:
                _log.warning("Ray does not remove runners", error=str(error))
                await asyncio.sleep(_REMOVE_AGAIN_S)
            else:
                return

    async def _on_nodes(
        self, concerns: Callable[[frozenset[str]], bool], function: Callable[..., AnswerT], *arguments: object
    ) -> list[AnswerT]:
        """What the function answers on every living Ray node with machines whose resources are so; where this process is, it is called
        here. One that does not answer in time is left out."""
        return await asyncio.to_thread(answers_of_nodes, concerns, function, *arguments)

    @staticmethod
    async def _in_thread(threads: ThreadPoolExecutor, function: Callable[..., AnswerT], *arguments: object) -> AnswerT:
        return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)


def every_runner() -> tuple[RunnerHandle, ...]:
    """The runners of all clusters that exist in the Ray to which this process belongs, sorted by name."""
    named: list[dict[str, str]] = ray.util.list_named_actors(all_namespaces=True)
    names = (actor["name"] for actor in named if actor["namespace"] == NAMESPACE)
    found: list[RunnerHandle] = []
    for name in sorted(name for name in names if name.startswith(f"{NAMESPACE}/")):
        # One that has ended between the two calls is not there.
        with suppress(ValueError):
            found.append(RunnerHandle(name, ray.get_actor(name, namespace=NAMESPACE)))
    return tuple(found)


def _offered_machines() -> OfferedMachines | None:
    prefix = machine_resource(MachineId(""))
    try:
        nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's own
    except RayError as error:
        _log.warning("Ray does not say which nodes live", error=str(error))
        return None
    living = [node for node in nodes if node["Alive"]]
    if not living:
        # This process itself belongs to a node: who names none knows nothing yet.
        _log.warning("Ray names no living node")
        return None
    offered = {resource for node in living for resource in node["Resources"]}
    named = frozenset(
        MachineId(resource.removeprefix(prefix))
        for resource in offered
        if resource.startswith(prefix) and resource != EVERY_MACHINE
    )
    return OfferedMachines(named, every=EVERY_MACHINE in offered)
