"""A real service, as `topmast up` starts it: PostgreSQL, Ray, and a process for each tier, all of them killable."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
import psycopg

from domain.fleet import Fleet
from domain.tenant import Tenant
from domain.workload import WorkloadSpecification
from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.configuration import Configuration, TasksConfiguration
from services.database.embedded import EmbeddedLayout, is_running, stop_embedded
from services.database.server_processes import read_postmaster_id
from services.runtime.home import HomeLayout
from services.runtime.host_options import HostOptions
from services.runtime.local import down, up
from services.runtime.tier_place import TierProcesses
from services.security.home_tokens import admin_token_file
from services.tiers.free_port import free_port
from services.wire.workloads import specification_to_proto
from simulator.validate import validate
from simulator.validation.report import ValidationReport
from tests.house.session_guards import SESSION_VARIABLE
from tests.live.running import is_end
from topmast import Client, Event, TopmastError, UnavailableError, Workload
from topmast.token import TOKEN_FILE_VARIABLE

PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""

_LOOK_INTERVAL_REAL_S = 0.05
_TOLD_CHARACTERS = 3_000
_MARK_VARIABLE = "RUN_OF_A_REAL_SERVICE"
"""In the environment of every process of the service but PostgreSQL's own."""

_ResultT = TypeVar("_ResultT")

Tier = tuple[str, str]
"""What GetStatus calls it: global, regional or cluster, and the name of the region or cluster."""


@dataclass
class RealService:
    """A running service, the workloads that were submitted to it, and everything that its event log has told so far."""

    options: HostOptions
    mark: str
    fleet: Fleet
    tenants: Sequence[Tenant]
    client: Client
    specifications: dict[str, WorkloadSpecification] = field(default_factory=dict)
    """By the id of the workload."""
    events: list[Event] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)
    """Set when the client is about to be closed."""
    _told: threading.Condition = field(default_factory=threading.Condition)

    @property
    def home(self) -> Path:
        return self.options.home

    # ------------------------------------------------------------ workloads and events

    def submit(self, specifications: Sequence[WorkloadSpecification]) -> list[str]:
        """The ids of the workloads."""
        submitted = self.client.submit_many([specification_to_proto(one) for one in specifications])
        names = [one.workload for one in submitted]
        self.specifications.update(zip(names, specifications, strict=True))
        return names

    def follow(self) -> None:
        """Reads the event log until the client is closed, whatever dies and comes back meanwhile; for a thread of its own."""
        while not self.closing.is_set():
            try:
                after = self.events[-1].sequence if self.events else 0
                for event in self.client.events(after_sequence=after, follow=True):
                    with self._told:
                        self.events.append(event)
                        self._told.notify_all()
            except UnavailableError:
                # The whole service takes longer to come back than a client waits, on a machine that is busy.
                continue
            except TopmastError:
                if not self.closing.is_set():
                    raise

    def until(self, condition: Callable[[Sequence[Event]], bool], what: str) -> None:
        """Waits until the events are such."""
        with self._told:
            reached = self._told.wait_for(lambda: condition(self.events), timeout=PATIENCE_REAL_S)
        assert reached, f"{what}: not reached with {len(self.events)} events, the last: {self.events[-3:]}"

    def until_more(self, count: int, kinds: Sequence[str]) -> None:
        """Waits until so many more events of these kinds have come, or every workload has ended."""
        wanted = self.count(*kinds) + count
        self.until(
            lambda events: sum(event.event in kinds for event in events) >= wanted or self._all_ended(events),
            f"{count} more {' or '.join(kinds)}",
        )

    def until_all_ended(self) -> None:
        """Waits as long as workload after workload ends."""
        while not self._all_ended(self.events):
            self.until_more_ended(sum(map(is_end, self.events)))

    def until_more_ended(self, already: int) -> None:
        self.until(lambda events: sum(map(is_end, events)) > already, f"more than {already} have ended")

    def count(self, *kinds: str) -> int:
        with self._told:
            return sum(event.event in kinds for event in self.events)

    def _all_ended(self, events: Sequence[Event]) -> bool:
        return sum(is_end(event) for event in events) >= len(self.specifications)

    def workload(self, name: str) -> Workload:
        return patiently(lambda: self.client.get(name))

    def until_workload(self, name: str, condition: Callable[[Workload], bool], what: str) -> Workload:
        """Waits until the workload is such."""
        deadline_s = time.monotonic() + PATIENCE_REAL_S
        while not condition(workload := self.workload(name)):
            assert time.monotonic() < deadline_s, f"{what}: {workload}"
            time.sleep(_LOOK_INTERVAL_REAL_S)
        return workload

    def until_checkpoint(self, name: str) -> Workload:
        return self.until_workload(name, lambda now: now.checkpoint_progress > 0, "has saved a checkpoint")

    def until_progress(self, name: str, progress: float) -> Workload:
        return self.until_workload(name, lambda now: now.progress >= progress, f"has come to {progress}")

    # ------------------------------------------------------------ processes

    def process_id(self, tier: Tier) -> int | None:
        """The process of a tier that holds its lease; None while none does."""
        status = patiently(self.client.status)
        return next((one.process_id for one in status.tiers if (one.tier, one.name) == tier and one.alive), None)

    def until_held(self, tier: Tier, *, but_not_by: int | None = None) -> int:
        """Waits until a process (another than that one) holds the tier's lease; returns its id."""
        deadline_s = time.monotonic() + PATIENCE_REAL_S
        while (process_id := self.process_id(tier)) in {None, but_not_by}:
            assert time.monotonic() < deadline_s, f"no process is {tier}"
            time.sleep(_LOOK_INTERVAL_REAL_S)
        assert process_id is not None
        return process_id

    def kill(self, tier: Tier) -> int:
        """Kills the process of a tier; returns its id."""
        process_id = self.until_held(tier)
        assert process_id in {process.pid for process in self.processes()}, "only our own are killed"
        os.kill(process_id, signal.SIGKILL)
        return process_id

    def kill_postgres(self) -> int:
        """Kills PostgreSQL's first process; returns its id."""
        process_id = read_postmaster_id(EmbeddedLayout.of(self.home).data)
        assert process_id is not None
        os.kill(process_id, signal.SIGKILL)
        return process_id

    def until_postgres_replaced(self, former_process_id: int) -> None:
        """Waits until another server answers."""
        layout = EmbeddedLayout.of(self.home)
        deadline_s = time.monotonic() + PATIENCE_REAL_S
        while read_postmaster_id(layout.data) in {None, former_process_id} or not _answers(layout.url()):
            assert time.monotonic() < deadline_s, "PostgreSQL did not come back"
            time.sleep(_LOOK_INTERVAL_REAL_S)

    def task_processes(self, workload: str) -> list[int]:
        """The ids of the processes that run tasks of this workload."""
        return [process.pid for process in _processes_with("TOPMAST_WORKLOAD", workload)]

    def until_task_process(self, workload: str) -> int:
        """Waits until one process, and one only, runs a task of this workload; returns its id."""
        deadline_s = time.monotonic() + PATIENCE_REAL_S
        while len(processes := self.task_processes(workload)) != 1:
            assert time.monotonic() < deadline_s, f"the processes of {workload} are {processes}"
            time.sleep(_LOOK_INTERVAL_REAL_S)
        return processes[0]

    def processes(self) -> list[psutil.Process]:
        """Every process that belongs to the service, PostgreSQL's own not among them."""
        return _processes_with(_MARK_VARIABLE, self.mark)

    # ------------------------------------------------------------ the truth of the run

    def check(self) -> ValidationReport:
        """The log tells of a whole run in which each workload ended once, and the validator finds nothing in it."""
        events = list(patiently(lambda: tuple(self.client.events())))
        ends = Counter(event.workload for event in events if is_end(event))
        assert ends == Counter(self.specifications.keys())
        assert [event.sequence for event in self.events] == [event.sequence for event in events]
        report = validate([event.as_json() for event in events], self.fleet, self.tenants, complete=True)
        assert report.violations == 0, [str(violation) for violation in report.shown[:5]]
        assert report.workloads == len(self.specifications) > 0
        return report


def patiently(call: Callable[[], _ResultT]) -> _ResultT:
    """Calls until there is an answer."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while True:
        try:
            return call()
        except UnavailableError:
            if time.monotonic() > deadline_s:
                raise


@contextmanager
def real_service(
    fleet: Fleet,
    tenants: Sequence[Tenant],
    clock_speed: float,
    configuration: Configuration | None = None,
    tiers: TierProcesses = TierProcesses.SHARED,
    *,
    standby: bool = False,
) -> Iterator[RealService]:
    """A service in a home of its own. Its tiers can be killed one by one where they are separate, which takes several times as
    long to start. When it ends, however it ends, nothing of it is left."""
    home = Path(tempfile.mkdtemp(prefix="topmast-live-"))
    mark = uuid.uuid4().hex
    os.environ[_MARK_VARIABLE] = mark
    try:
        configuration = configuration or Configuration()
        marked = TasksConfiguration(variables=[_MARK_VARIABLE, SESSION_VARIABLE])
        configuration = configuration.model_copy(update={"tasks": marked})
        options = _options(home, fleet, tenants, clock_speed, configuration, tiers)
        options = options.model_copy(update={"standby": standby})
        address = up(options).address
        # Programs of people find it there: their home is another one.
        os.environ[TOKEN_FILE_VARIABLE] = str(admin_token_file(home))
        with Client(address) as client:
            service = RealService(options, mark, fleet, tenants, client)
            following = threading.Thread(target=service.follow, daemon=True)
            following.start()
            try:
                yield service
            finally:
                service.closing.set()
        following.join()
        assert down(home)
        left = [*service.processes(), *([] if not is_running(home) else ["PostgreSQL"])]
        assert not left, f"left running: {left}; the host said: {_told_by_host(home)}"
    finally:
        del os.environ[_MARK_VARIABLE]
        os.environ.pop(TOKEN_FILE_VARIABLE, None)
        _end_everything(home, mark)
        shutil.rmtree(home, ignore_errors=True)


def _told_by_host(home: Path) -> str:
    return HomeLayout(home).host_log.read_text(encoding="utf-8", errors="replace")[-_TOLD_CHARACTERS:]


def _options(
    home: Path,
    fleet: Fleet,
    tenants: Sequence[Tenant],
    clock_speed: float,
    configuration: Configuration,
    tiers: TierProcesses,
) -> HostOptions:
    files = {
        "fleet.yaml": dump_fleet(fleet),
        "tenants.yaml": dump_tenants(tenants),
        # What is not set is as the policies have it: not the same as what is set to null.
        "configuration.yaml": configuration.model_dump_json(exclude_unset=True),
    }
    for name, content in files.items():
        (home / name).write_text(content, encoding="utf-8")
    return HostOptions(
        home=home,
        # Settled before, so that the service is where it was when it comes up again.
        port=free_port("127.0.0.1"),
        fleet_file=home / "fleet.yaml",
        tenants_file=home / "tenants.yaml",
        configuration_file=home / "configuration.yaml",
        clock_speed=clock_speed,
        tiers=tiers,
    )


def _end_everything(home: Path, mark: str) -> None:
    """What `down` may have left behind, because the test failed before or `down` did."""
    for process in _processes_with(_MARK_VARIABLE, mark):
        with _already_gone():
            process.send_signal(signal.SIGCONT)
            process.kill()
    stop_embedded(home)


@contextmanager
def _already_gone() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


def _processes_with(variable: str, value: str) -> list[psutil.Process]:
    """Processes, other than this one, that have the variable in their environment, oldest first."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(variable) == value:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False
