"""Which workloads of a simulation read which tables: what they may do changes when a table moves."""

from __future__ import annotations

from collections.abc import Callable

from domain.identifiers import RegionId, TableId
from domain.life_cycle import ENDED, LIVE, QUEUED, Happening
from regional_scheduler.auction import AwaitingData
from simulator.engine.attempts import Attempts
from simulator.engine.binding import Bindings
from simulator.engine.intake import Intake
from simulator.engine.queue_pass import SimulatedQueuePass
from simulator.engine.waits_for_data import WaitsForData
from simulator.engine.workloads import NO_REGION, SimulatedWorkload
from simulator.engine.world import World


class ReadersOfTables:
    """Every workload with input tables, from its submission to its end."""

    def __init__(
        self,
        world: World,
        intake: Intake,
        bindings: Bindings,
        attempts: Attempts,
        queue_pass: SimulatedQueuePass,
        *,
        follows: bool,
    ) -> None:
        """`follows`: whether tables move at all; else nobody has to know later who reads them. What the world has already
        is known."""
        self._world = world
        self._intake = intake
        self._bindings = bindings
        self._attempts = attempts
        self._queue_pass = queue_pass
        self._readers: dict[TableId, list[SimulatedWorkload]] = {}
        self._awaiting: dict[int, SimulatedWorkload] = {}
        """Those that no region can run for want of data, by index."""
        self._on_wait: Callable[[], None] | None = None
        self._follows = follows
        self._moved = False
        """Whether any table has."""
        self.waits = WaitsForData()
        self.reading = 0
        """How many workloads read any table."""
        for work in world.workloads if follows else ():
            self.submitted(work)
            if work.state in QUEUED and not work.eligible:
                self._awaiting[work.index] = work
                self.waits.begins(work.index, world.clock.now())

    def on_wait(self, listener: Callable[[], None]) -> None:
        """Called when a workload begins to wait for data."""
        self._on_wait = listener

    def place(self, work: SimulatedWorkload) -> None:
        """It is being submitted; tables may have moved since it was made."""
        if self._moved and work.workload.specification.tables:
            self._intake.place_anew(work)

    def submitted(self, work: SimulatedWorkload) -> None:
        """It was accepted."""
        tables = work.workload.specification.tables
        if not tables:
            return
        self.reading += 1
        for each in tables if self._follows else ():
            self._readers.setdefault(each.table, []).append(work)

    def awaits_data(self, work: SimulatedWorkload, now: float) -> None:
        """No region can run it for want of data."""
        world = self._world
        if self._follows:
            self._awaiting[work.index] = work
        world.without_data += 1
        self.waits.begins(work.index, now)
        work.happens(Happening.NO_DATA)
        if world.log is not None:
            verdict = world.regions.verdict(self._queue_pass.lot_of(work), (), now)
            if isinstance(verdict, AwaitingData):
                world.log.awaiting_data(work, verdict, now)
        if self._on_wait is not None:
            self._on_wait()

    def awaiting(self) -> list[SimulatedWorkload]:
        """Those that wait for data, by the priority of the quota that they are charged to, then in the order of their submission."""
        return sorted(self._awaiting.values(), key=lambda work: (work.quota_priority, work.index))

    def read_in(self, table: TableId, region: RegionId) -> bool:
        """Whether an attempt holds something in the region of a workload that reads the table."""
        world = self._world
        return any(
            work.state in LIVE and work.region != NO_REGION and world.regions.members[work.region].region == region
            for work in self._readers.get(table, ())
        )

    def table_moved(self, table: TableId, now: float) -> None:
        """Where its readers may run is worked out anew; those that waited for it come to the queue."""
        world, self._moved = self._world, True
        self._intake.tables_moved()
        readers = [work for work in self._readers.get(table, ()) if work.state not in ENDED]
        self._readers[table] = readers
        for work in readers:
            self._place_anew(work, now)
        world.news = True

    def _place_anew(self, work: SimulatedWorkload, now: float) -> None:
        world, awaited = self._world, work.index in self._awaiting
        queued = not awaited and world.queue.holds(work)
        before = work.eligible
        if queued:
            world.queue.remove(work)
        self._intake.place_anew(work)
        if before and work.eligible:
            # Where it was bound to a region it stays, if it can.
            bound = self._bindings.region_of(work)
            if bound is not None and bound in work.eligible:
                self._intake.bind(work, bound)
        if queued and work.eligible:
            world.queue.add(work, now)
        elif queued:
            self.awaits_data(work, now)
        elif awaited and work.eligible:
            del self._awaiting[work.index]
            world.without_data -= 1
            self.waits.ends(work.index, now)
            region = self._bindings.region_for(work, now)
            if region is not None:
                self._intake.bind(work, region)
            self._attempts.queue(work)
