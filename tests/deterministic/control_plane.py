"""A whole control plane through troubles that a seed draws, and what must be true at the end of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, JobName
from domain.resources import Quota, TaskResources
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, RetryPolicy, WorkloadSpecification
from services.configuration import Configuration, LeaseConfiguration, ScanConfiguration
from services.database import event_store
from services.database.engine import Database
from services.database.event_store import StoredEvent
from simulator.validate import validate
from tests.chaos.driver.linearizability import check
from tests.deterministic.postgres_by_turns import DatabaseWeather, PostgresByTurns
from tests.deterministic.simulated_clients import Users
from tests.deterministic.simulated_network import NetworkWeather, SimulatedNetwork
from tests.deterministic.simulation import Moment, SimulatedProcess, SimulatedWorld
from tests.deterministic.tier_processes import ControlPlane, Interruption, Place, simulated_control_plane
from tests.live.world import A100, EAST, RANKING, RESEARCH, V100, WEST, gpu_cluster

FLEET = Fleet(
    (
        Region(EAST, (gpu_cluster("east-a", A100, 2, gpus=4), gpu_cluster("east-b", A100, 1, gpus=4))),
        Region(WEST, (gpu_cluster("west-a", V100, 1),)),
    )
)
TENANTS = (Tenant(RANKING, 0, Quota.of({ANY_GPU_MODEL: 8})), Tenant(RESEARCH, 3, Quota.of({ANY_GPU_MODEL: 4})))
PLACES = (
    Place("global-0", 7000),
    Place("global-1", 7001),
    Place("east-0", 7100, "east"),
    Place("east-1", 7101, "east"),
    Place("west-0", 7110, "west"),
    Place("west-1", 7111, "west"),
    Place("east-a-0", 7200, "east", "east-a"),
    Place("east-a-1", 7201, "east", "east-a"),
    Place("east-b-0", 7210, "east", "east-b"),
    Place("west-a-0", 7220, "west", "west-a"),
)
CONFIGURATION = Configuration(
    scan=ScanConfiguration(period_real_s=2.0), lease=LeaseConfiguration(duration_real_s=3.0)
).without_authentication()
_RETRY = RetryPolicy(max_retries=100, backoff_s=1.0, backoff_cap_s=2.0)
_LEADERS_SHARE = 0.7
_CALM_SHARE = 0.1
_INTERRUPTIONS = 2.0
"""So much more often than any other trouble."""
_ENDS = frozenset({"completed", "failed", "cancelled"})

_LEFT = """
    SELECT (SELECT count(*) FROM queue_entries), (SELECT count(*) FROM awards),
           (SELECT count(*) FROM attempts WHERE ended_s IS NULL),
           (SELECT count(*) FROM quota_use WHERE amount <> 0),
           (SELECT count(*) FROM workloads WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED'))"""


@dataclass
class Course:
    """One course of a control plane: what is submitted, and what troubles come, by the seed."""

    seed: int
    url: str
    home: Path
    workloads: int = 14
    troubled_s: float = 15.0
    calm_s: float = 150.0
    troubles: Counter[str] = field(default_factory=Counter)
    events: list[StoredEvent] = field(default_factory=list)
    left: list[tuple[object, ...]] = field(default_factory=list)
    """So many queued, awarded, running, charged and not ended at the end."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, 0])
        self.world = SimulatedWorld(np.random.default_rng([self.seed, 1]))
        self.postgres = PostgresByTurns(self.world, self.url, np.random.default_rng([self.seed, 2]))
        self.network = SimulatedNetwork(self.world, np.random.default_rng([self.seed, 3]))
        self.plane = ControlPlane(self.world, self.postgres, self.network, CONFIGURATION, self.home, PLACES)
        globals_ = [place.address for place in PLACES if not place.region]
        self.users = Users(self.network, globals_, np.random.default_rng([self.seed, 4]))

    def run(self) -> None:
        """Troubles come for a while, and then none: by the end everything has ended."""
        self.postgres.prepare()
        for place in PLACES:
            self.plane.begin(place)
        people = SimulatedProcess(self.world, "users")
        _, submitting = people.start_loop(self.users.run(FLEET, TENANTS, self._submissions()))
        while not self.users.ready:
            self._until(self.world.now_s + 0.5)
        end_s = self.world.now_s + self.troubled_s
        while self.world.now_s < end_s:
            self._until(self.world.now_s + float(self.rng.exponential(0.7)))
            self._trouble()
        self._calm()
        end_s = self.world.now_s + self.calm_s
        while not (submitting.done() and self._all_ended()):
            assert self.world.now_s < end_s, self._told(f"not over: {self._unended()}")
            self._until(self.world.now_s + 2.0)
        submitting.result()
        self._until(self.world.now_s + 5.0)
        self.left = self.postgres.rows(_LEFT)

    def check(self) -> None:
        """Called when nothing is simulated any more."""
        assert not self.world.broke, self._told(f"{self.world.broke[:2]}")
        assert not self.plane.overlaps, self._told(f"{self.plane.overlaps}")
        assert not self.users.refused, self._told(f"{self.users.refused}")
        self.events = asyncio.run(_read_events(self.url))
        ends = Counter(stored.event.workload for stored in self.events if stored.event.event.value in _ENDS)
        names = Counter(stored.event.workload for stored in self.events if stored.event.event.value == "submitted")
        assert set(self.users.acknowledged.values()) <= set(names), self._told("an acknowledged workload is not there")
        assert len(names) == self.workloads, self._told(f"{len(names)} workloads for {self.workloads} keys")
        assert set(names.values()) == {1}, self._told(f"submitted more than once: {names}")
        assert ends == names, self._told(f"ends: {ends}, workloads: {names}")
        report = validate([one.event.as_json() for one in self.events], FLEET, TENANTS, complete=True)
        assert report.violations == 0, self._told(f"{[str(one) for one in report.shown]}")
        odd = check(self.users.history())
        assert not odd, self._told(f"{odd}")
        assert self.left == [(0, 0, 0, 0, 0)], self._told(f"left in the database: {self.left}")

    def _until(self, until_s: float) -> None:
        self.world.run(until_s, self.plane.look)

    def _told(self, what: str) -> str:
        return f"seed {self.seed}: {what}"

    def _submissions(self) -> list[tuple[float, WorkloadSpecification]]:
        rng = np.random.default_rng([self.seed, 5])
        return [(float(rng.exponential(0.6)), _workload(f"w{number}", rng)) for number in range(self.workloads)]

    # ------------------------------------------------------------ troubles

    def _trouble(self) -> None:
        rng = self.rng
        place = self._victim()
        troubles: dict[str, Callable[[], None]] = {
            "kill": lambda: self._kill(place),
            "kill and leave": lambda: self._kill(place, float(rng.uniform(0.5, 8.0))),
            "halt": lambda: self._halt(place, float(rng.uniform(0.2, 17.0))),
            "busy": lambda: self._busy(place, float(rng.uniform(0.2, 8.0))),
            "interrupt": lambda: self._interrupt(place),
            "cut": self.network.cut,
            "apart": lambda: self._apart(place),
            "late requests": lambda: self._network(NetworkWeather(late=float(rng.uniform(0.1, 0.5)))),
            "slow network": lambda: self._network(NetworkWeather(latency_s=float(rng.uniform(0.01, 0.5)))),
            "database away": lambda: self._database(DatabaseWeather(down=True)),
            "slow database": lambda: self._database(DatabaseWeather(latency_s=float(rng.uniform(0.005, 0.05)))),
            "connections break": lambda: self._database(DatabaseWeather(loss=float(rng.uniform(0.01, 0.1)))),
        }
        if rng.random() < _CALM_SHARE:
            self._calm()
            return
        weights = np.array([_INTERRUPTIONS if kind == "interrupt" else 1.0 for kind in troubles])
        kind = str(rng.choice(list(troubles), p=weights / weights.sum()))
        self.troubles[kind] += 1
        troubles[kind]()

    def _victim(self) -> Place:
        """More often one that leads."""
        leading = [one.place for one in self.plane.present.values() if one.is_certain()]
        places = leading if leading and self.rng.random() < _LEADERS_SHARE else PLACES
        return places[int(self.rng.integers(len(places)))]

    def _kill(self, place: Place, away_s: float = 0.0) -> None:
        self.plane.kill(place)
        if away_s:
            self._until(self.world.now_s + away_s)
        self.plane.begin(place)

    def _halt(self, place: Place, for_s: float) -> None:
        self.plane.present[place.name].halt(self.world.now_s + for_s)

    def _busy(self, place: Place, for_s: float) -> None:
        """Its lease is renewed meanwhile, by a thread."""
        self.plane.present[place.name].loops[0].halted_until_s = self.world.now_s + for_s

    def _interrupt(self, place: Place) -> None:
        """Where it comes next to what matters: mostly halted for longer than its lease lasts."""
        # Calls are rarer than transactions.
        moment = Moment.CALL if self.rng.random() < 0.5 else list(Moment)[int(self.rng.integers(len(Moment)))]
        halted_s = float(self.rng.uniform(3.5, 7.0)) if self.rng.random() < 0.6 else 0.0
        self.plane.interruptions[self.plane.present[place.name].name] = Interruption(moment, halted_s)

    def _apart(self, place: Place) -> None:
        self._network(NetworkWeather(apart=frozenset({self.plane.present[place.name].name})))

    def _network(self, weather: NetworkWeather) -> None:
        self.network.weather = weather

    def _database(self, weather: DatabaseWeather) -> None:
        self.postgres.weather = weather

    def _calm(self) -> None:
        self.network.weather, self.postgres.weather = NetworkWeather(), DatabaseWeather()

    # ------------------------------------------------------------ the end

    def _all_ended(self) -> bool:
        return not self._unended()

    def _unended(self) -> list[tuple[object, ...]]:
        query = "SELECT workload, state FROM workloads WHERE state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"
        return self.postgres.rows(query)


def run_course(seed: int, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """The course of a seed, when it is over and all was true at its end that must be."""
    course = Course(seed, url, home)
    with simulated_control_plane(monkeypatch, course.plane, np.random.default_rng([seed, 6])):
        course.run()
    course.check()
    return course


def _workload(name: str, rng: np.random.Generator) -> WorkloadSpecification:
    """Of one GPU to a machine, one task or two, a few seconds."""
    tenant = (RANKING, RESEARCH)[int(rng.integers(2))]
    model = (ANY_GPU_MODEL, A100, V100)[int(rng.integers(3))]
    job = JobSpecification(
        JobName("main"),
        int(rng.integers(1, 3)),
        TaskResources(gpus=int(rng.integers(1, 5)), gpu_model=model),
        Emulated(float(rng.uniform(1.0, 8.0)), 1.0),
    )
    return WorkloadSpecification(name, tenant, (job,), retry=_RETRY)


async def _read_events(url: str) -> list[StoredEvent]:
    async with Database(url) as database, database.transaction() as connection:
        page = await event_store.read(connection, 0, 100_000)
        assert page.complete
        return list(page.events)
