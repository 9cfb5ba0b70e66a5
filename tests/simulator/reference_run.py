"""A tiny scheduler that only makes legal moves, at random: whatever it logs, the validator must accept.

It keeps its books in another way than the validator (what is free instead of what is held), knows no cleverness, and
waits with a start until all that are to leave those machines have left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from domain.events import JsonValue
from tests.simulator.log_builder import CLUSTERS, FLEET, PRIORITIES, Json, items, real, whole

REGION_OF = {"e1": "east", "e2": "east", "c1": "east", "w1": "west"}
QUOTAS = {"ads": {"A100": 4, "any": 2, "cpus": 16}, "vision": {"any": 8}, "guests": {"any": 0}}
HOLDING = {"clicks": ["east"], "images": ["west", "east"]}


@dataclass
class FreeMachine:
    gpus: set[int]
    cpus: float
    memory_gib: float
    model: str
    up: bool = True


@dataclass
class LoggedAttempt:
    number: int
    region: str
    standing: tuple[int, int]
    within: bool
    placement: list[Json]
    restored: float
    started_s: float | None = None
    speed: float = 1.0
    speed_since_s: float = 0.0
    done: float = 0.0
    """Work done before `speed_since_s`."""
    checkpoint: float = 0.0
    leaving: Json | None = None
    """Cause of the eviction that has begun."""


@dataclass
class LoggedWork:
    name: str
    tenant: str
    jobs: list[Json]
    regions: list[str]
    charge: dict[str, float]
    work_s: float | None
    attempts: int = 0
    kept: float = 0.0
    live: LoggedAttempt | None = None

    @property
    def attempt(self) -> LoggedAttempt:
        """The live one, where there must be one."""
        assert self.live is not None
        return self.live


@dataclass
class ReferenceRun:
    """Call `step` as often as wanted, then `finish`; `records` is the log."""

    rng: np.random.Generator
    records: list[Json] = field(default_factory=list)
    t: float = 1000.0

    def __post_init__(self) -> None:
        self.free = {
            str(m.machine): FreeMachine(set(range(m.gpus)), m.cpus, m.memory_gib, str(m.gpu_model))
            for region in FLEET.regions
            for m in region.machines()
        }
        self.open: dict[str, LoggedWork] = {}
        self.used: dict[tuple[str, str], float] = {}
        self.submitted = 0

    def step(self) -> None:
        self.t += float(self.rng.exponential(5.0)) if self.rng.random() < 0.7 else 0.0
        moves = [
            self.submit, self.dispatch, self.dispatch, self.start, self.start, self.leave, self.checkpoint,
            self.complete, self.fail, self.cancel, self.change_machine, self.reclassify, self.resize, self.tune, self.queue,
        ]  # fmt: skip
        moves[int(self.rng.integers(len(moves)))]()

    def finish(self) -> None:
        """Ends every workload."""
        for work in list(self.open.values()):
            attempt = work.live
            if attempt is not None and attempt.started_s is not None and work.work_s is not None:
                left = work.work_s - self.progress(work)
                self.t += left / attempt.speed
                self.log("completed", work, progress=work.work_s)
                self.end(work)
            elif attempt is not None:
                self.log("cancelled", work, progress=self.progress(work))
                self.end(work)
            else:
                self.log("cancelled", work)
                del self.open[work.name]

    # Moves.

    def submit(self) -> None:
        self.submitted += 1
        name, tenant = f"w{self.submitted}", self.choice(["ads", "vision", "guests"])
        jobs = [self.random_job("main")] + ([self.random_job("more")] if self.rng.random() < 0.3 else [])
        tables: list[Json] = [
            {"table": table, "fresh": bool(self.rng.random() < 0.3)} for table in HOLDING if self.rng.random() < 0.3
        ]
        allowed = [[], [], ["east"], ["west", "east"]][int(self.rng.integers(4))]
        regions = [
            region
            for region in ("east", "west")
            if (not allowed or region in allowed)
            and all(region in HOLDING[str(t["table"])][: 1 if t["fresh"] else 2] for t in tables)
        ]
        charge: dict[str, float] = {}
        for job in jobs:
            gpus, cpus, tasks = real(job["gpus"]), real(job["cpus"] or 0), whole(job["tasks"])
            bucket = "A100" if tenant == "ads" and job["gpu_model"] == "A100" else "any"
            if gpus:
                charge[bucket] = charge.get(bucket, 0) + gpus * tasks
            if tenant == "ads" and cpus:
                charge["cpus"] = charge.get("cpus", 0) + cpus * tasks
        emulated = bool(self.rng.random() < 0.8)
        work_s = float(self.rng.uniform(1, 60)) if emulated else None
        work = LoggedWork(name, tenant, jobs, regions, charge, work_s)
        self.open[name] = work
        self.log(
            "submitted", work, tenant=tenant, name=name, jobs=list[JsonValue](jobs), tables=list[JsonValue](tables),
            regions=list[JsonValue](allowed), work_s=work_s, emulated=emulated,
        )  # fmt: skip

    def queue(self) -> None:
        work = self.pick(live=False)
        if work is not None:
            within = self.fits_quota(work)
            priority = PRIORITIES[work.tenant] if within else 6
            credit = float(self.rng.normal())
            self.log("ranked", work, priority=priority, level=0, credit=credit, within_quota=within)
            self.log("waiting", work, reason="no room")

    def dispatch(self) -> None:
        work = self.pick(live=False)
        if work is None:
            return
        within = self.fits_quota(work)
        standing = (PRIORITIES[work.tenant] if within else 6, int(self.rng.integers(3)))
        for region in work.regions:
            victims: list[LoggedWork] = []
            candidates = [
                other
                for other in self.open.values()
                if other.live and other.live.region == region and not other.live.leaving
                and other.live.standing > standing
            ]  # fmt: skip
            while True:
                placement = self.place(work, region)
                if placement is not None or not candidates:
                    break
                victims.append(candidates.pop(int(self.rng.integers(len(candidates)))))
                self.give(victims[-1].attempt.placement)
            if placement is None:
                for victim in victims:
                    self.take(victim.attempt.placement)
                continue
            for victim in list(victims):
                self.take(victim.attempt.placement)
                without = self.place(work, region)
                if without is None:
                    self.give(victim.attempt.placement)
                else:
                    placement = without
                    victims.remove(victim)
            self.begin(work, region, standing, within, placement, victims)
            return

    def begin(
        self,
        work: LoggedWork,
        region: str,
        standing: tuple[int, int],
        within: bool,
        placement: list[Json],
        victims: list[LoggedWork],
    ) -> None:
        self.take(placement)
        work.attempts += 1
        work.live = LoggedAttempt(
            work.attempts, region, standing, within, placement, work.kept, checkpoint=work.kept, done=work.kept
        )
        if within:
            self.charge(work, 1)
        evicts: list[JsonValue] = [{"workload": v.name, "attempt": v.live.number} for v in victims if v.live]
        self.log(
            "dispatched", work, **self.standing_of(work), region=region, placement=list[JsonValue](placement),
            evicts=evicts,
        )  # fmt: skip
        for victim in victims:
            cause: Json = {
                "cause": "preempted", "by": work.name, "by_priority": standing[0], "by_level": standing[1],
            }  # fmt: skip
            self.log("evicting", victim, **cause)
            victim.attempt.leaving = cause

    def start(self) -> None:
        work = self.pick(live=True)
        if work is None or work.live is None or work.live.started_s is not None or work.live.leaving:
            return
        machines = {entry["machine"] for entry in work.live.placement}
        leaving = {
            entry["machine"]
            for other in self.open.values()
            if other.live and other.live.leaving and other.live.started_s is not None
            for entry in other.live.placement
        }
        if machines & leaving or not all(self.free[str(machine)].up for machine in machines):
            return
        work.live.started_s = work.live.speed_since_s = self.t
        self.log(
            "started", work, **self.standing_of(work), region=work.live.region,
            placement=list[JsonValue](work.live.placement), progress=work.live.restored, emulated=work.work_s is not None,
        )  # fmt: skip

    def leave(self) -> None:
        work = self.pick(live=True)
        if work is None or work.live is None or not work.live.leaving:
            return
        progress = self.progress(work)
        kept = work.live.checkpoint if work.live.leaving["cause"] == "machine_lost" else progress
        self.log("evicted", work, **work.live.leaving, progress=progress, checkpoint_progress=kept)
        preempted = work.live.leaving["cause"] == "preempted"
        self.end(work, kept, give=not preempted)

    def checkpoint(self) -> None:
        work = self.pick(live=True)
        if work is not None and work.live is not None and work.live.started_s is not None:
            work.live.checkpoint = self.progress(work)
            self.log("checkpointed", work, progress=work.live.checkpoint)

    def complete(self) -> None:
        work = self.pick(live=True)
        if work is None or work.live is None or work.live.started_s is None:
            return
        if work.work_s is not None and self.progress(work) < work.work_s:
            return
        self.log("completed", work, progress=self.progress(work))
        self.end(work, give=not self.was_preempted(work))

    def fail(self) -> None:
        work = self.pick(live=True)
        if work is None or work.live is None or self.rng.random() < 0.7:
            return
        final = bool(self.rng.random() < 0.3)
        kept = work.live.checkpoint
        progress = self.progress(work)
        self.log("failed", work, reason="exit code 1", final=final, progress=progress, checkpoint_progress=kept)
        self.end(work, None if final else kept, give=not self.was_preempted(work))

    def cancel(self) -> None:
        work = self.pick(live=bool(self.rng.random() < 0.5))
        if work is None or self.rng.random() < 0.8:
            return
        if work.live is None:
            self.log("cancelled", work)
            del self.open[work.name]
        else:
            self.log("cancelled", work, progress=self.progress(work))
            self.end(work, give=not self.was_preempted(work))

    def change_machine(self) -> None:
        name = self.choice(sorted(self.free))
        machine = self.free[name]
        kind = self.choice(["machine_down", "machine_draining", "machine_up"]) if machine.up else "machine_up"
        if self.rng.random() < 0.6:
            return
        on_it = [w for w in self.open.values() if w.live and any(e["machine"] == name for e in w.live.placement)]
        self.records.append(
            {"t": self.t, "event": kind, "region": REGION_OF[name], "cluster": CLUSTERS[name], "machine": name,
             "reason": "random"}
        )  # fmt: skip
        if kind == "machine_up":
            machine.up = not any(w.live.leaving for w in on_it if w.live)
            return
        machine.up = False
        for work in on_it:
            if work.live and not work.live.leaving:
                work.live.leaving = {"cause": "machine_lost" if kind == "machine_down" else "drained"}
                if kind == "machine_draining":
                    self.log("evicting", work, **work.live.leaving)

    def reclassify(self) -> None:
        work = self.pick(live=True)
        if work is None or work.live is None or work.live.leaving:
            return
        within = not work.live.within
        if within and not self.fits_quota(work):
            return
        self.charge(work, 1 if within else -1)
        work.live.within = within
        work.live.standing = (PRIORITIES[work.tenant] if within else 6, work.live.standing[1])
        self.log("reclassified", work, **self.standing_of(work))

    def resize(self) -> None:
        """All flexible tasks of the first job come or go."""
        work = self.pick(live=True)
        if work is None or work.live is None or work.live.started_s is None or work.live.leaving:
            return
        job = work.jobs[0]
        base, most = whole(job["tasks"]), whole(job["max_tasks"])
        if most <= base:
            return
        flexible = [e for e in work.live.placement if e["job"] == job["job"] and whole(e["task"]) >= base]
        if flexible:
            self.give(flexible)
            work.live.placement = [e for e in work.live.placement if e not in flexible]
        else:
            more = self.place_tasks(job, work.live.region, range(base, most), self.machines_with_leaving())
            if more is None:
                return
            self.take(more)
            work.live.placement = [*work.live.placement, *more]
        self.change_speed(work)
        self.log("resized", work, placement=list[JsonValue](work.live.placement), speed=work.live.speed)

    def tune(self) -> None:
        """One CPU more or less for the first task."""
        work = self.pick(live=True)
        if work is None or work.live is None or work.live.started_s is None or work.live.leaving:
            return
        entry = work.live.placement[0]
        name, cpus = str(entry["machine"]), real(entry["cpus"])
        step = 1.0 if self.free[name].cpus >= 1 and name not in self.machines_with_leaving() else -min(1.0, cpus)
        self.free[name].cpus -= step
        work.live.placement = [{**entry, "cpus": cpus + step}, *work.live.placement[1:]]
        self.change_speed(work)
        self.log("tuned", work, placement=list[JsonValue](work.live.placement), speed=work.live.speed)

    # Books.

    def log(self, event: str, work: LoggedWork, **fields: JsonValue) -> None:
        attempt: Json = {"attempt": work.live.number} if work.live is not None else {}
        self.records.append({"t": self.t, "event": event, "workload": work.name, **attempt, **fields})

    def standing_of(self, work: LoggedWork) -> Json:
        assert work.live is not None
        return {
            "priority": work.live.standing[0], "level": work.live.standing[1], "within_quota": work.live.within,
        }  # fmt: skip

    def progress(self, work: LoggedWork) -> float:
        attempt = work.live
        assert attempt is not None
        if attempt.started_s is None:
            return attempt.restored
        done = attempt.done + (self.t - attempt.speed_since_s) * attempt.speed
        return done if work.work_s is None else min(done, work.work_s)

    def change_speed(self, work: LoggedWork) -> None:
        assert work.live is not None
        work.live.done, work.live.speed_since_s = self.progress(work), self.t
        work.live.speed = float(self.rng.uniform(0.5, 3.0))

    def end(self, work: LoggedWork, kept: float | None = None, *, give: bool = True) -> None:
        """The attempt is over; with `kept` the workload is queued again, else it has ended too."""
        assert work.live is not None
        if give:
            self.give(work.live.placement)
        if work.live.within:
            self.charge(work, -1)
        work.live = None
        if kept is None:
            del self.open[work.name]
        else:
            work.kept = kept

    def was_preempted(self, work: LoggedWork) -> bool:
        """Then its place has already been given away."""
        return bool(work.live and work.live.leaving and work.live.leaving["cause"] == "preempted")

    def fits_quota(self, work: LoggedWork) -> bool:
        return all(
            self.used.get((work.tenant, bucket), 0) + amount <= QUOTAS[work.tenant].get(bucket, 0)
            for bucket, amount in work.charge.items()
        )

    def charge(self, work: LoggedWork, sign: int) -> None:
        for bucket, amount in work.charge.items():
            self.used[work.tenant, bucket] = self.used.get((work.tenant, bucket), 0) + sign * amount

    def machines_with_leaving(self) -> set[str]:
        return {
            str(entry["machine"])
            for other in self.open.values()
            if other.live and other.live.leaving
            for entry in other.live.placement
        }

    def place(self, work: LoggedWork, region: str) -> list[Json] | None:
        placement: list[Json] = []
        for job in work.jobs:
            placed = self.place_tasks(job, region, range(whole(job["tasks"])), set())
            if placed is None:
                break
            self.take(placed)
            placement += placed
        else:
            self.give(placement)
            return placement
        self.give(placement)
        return None

    def place_tasks(self, job: Json, region: str, numbers: range, avoid: set[str]) -> list[Json] | None:
        """First fit, one task after the other."""
        placed: list[Json] = []
        for number in numbers:
            gpus, cpus, memory = whole(job["gpus"]), real(job["cpus"] or 2), real(job["memory_gib"] or 4)
            for name, machine in self.free.items():
                if REGION_OF[name] == region and name not in avoid and machine.up and len(machine.gpus) >= gpus and (
                    machine.cpus >= cpus and machine.memory_gib >= memory and (
                        not gpus or job["gpu_model"] in {"any", machine.model})
                ):  # fmt: skip
                    chosen = list[JsonValue](sorted(machine.gpus)[:gpus])
                    entry: Json = {
                        "job": job["job"], "task": number, "cluster": CLUSTERS[name], "machine": name, "gpus": chosen,
                        "cpus": cpus, "memory_gib": memory,
                    }  # fmt: skip
                    self.take([entry])
                    placed.append(entry)
                    break
            else:
                self.give(placed)
                return None
        self.give(placed)
        return placed

    def take(self, placement: list[Json]) -> None:
        self.move(placement, -1)

    def give(self, placement: list[Json]) -> None:
        self.move(placement, 1)

    def move(self, placement: list[Json], sign: int) -> None:
        for entry in placement:
            machine = self.free[str(entry["machine"])]
            gpus = {whole(index) for index in items(entry["gpus"])}
            machine.gpus = machine.gpus | gpus if sign > 0 else machine.gpus - gpus
            machine.cpus += sign * real(entry["cpus"])
            machine.memory_gib += sign * real(entry["memory_gib"])

    def random_job(self, name: str) -> Json:
        tasks, gpus = int(self.rng.integers(1, 3)), int(self.rng.integers(0, 4))
        elastic = bool(gpus and self.rng.random() < 0.4)
        return {
            "job": name, "tasks": tasks, "max_tasks": tasks + 1 if elastic else 0, "gpus": gpus,
            "gpu_model": self.choice(["any", "A100", "V100"]) if gpus else "any",
            "cpus": float(self.rng.integers(1, 8)) if not gpus or self.rng.random() < 0.5 else None,
            "memory_gib": float(self.rng.integers(1, 32)) if not gpus else None,
        }  # fmt: skip

    def pick(self, *, live: bool) -> LoggedWork | None:
        found = [work for work in self.open.values() if (work.live is not None) == live]
        return found[int(self.rng.integers(len(found)))] if found else None

    def choice(self, options: list[str]) -> str:
        return options[int(self.rng.integers(len(options)))]


def legal_log(seed: int, steps: int) -> list[Json]:
    """A legal log of so many random moves, in which every workload has ended."""
    run = ReferenceRun(np.random.default_rng(seed))
    run.submit()
    for _ in range(steps):
        run.step()
    run.finish()
    return run.records
