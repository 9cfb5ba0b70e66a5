"""I1: no machine's GPUs, CPUs or memory are over-committed; nothing starts on one that is down or not on loan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.fleet import Fleet, Machine, MachineState
from domain.identifiers import MachineId
from domain.machine_life_cycle import MachineHappening, MachineTransitionRefused, next_machine_state
from domain.resources import capacity_mebibytes, capacity_millicpus, request_mebibytes, request_millicpus
from simulator.validation.record_fields import (
    BadField,
    Record,
    number_field,
    text_field,
    whole_field,
    wholes_field,
)
from simulator.validation.report import Findings, Invariant

_SERVING = frozenset({MachineState.SERVING, MachineState.SERVING_DOWN})
_UNUSABLE = frozenset(state for state in MachineState if state.is_down) | _SERVING


class MachineUse:
    """One machine: its capacity, which attempts hold what of it, and whether training may use it."""

    __slots__ = (
        "cluster",
        "gpu_holders",
        "gpu_model",
        "gpus",
        "in_lost_cluster",
        "last_down_line",
        "last_draining_line",
        "lost",
        "mebibytes",
        "millicpus",
        "name",
        "region",
        "running",
        "state",
        "used_mebibytes",
        "used_millicpus",
    )

    def __init__(self, machine: Machine, cluster: str, region: str) -> None:
        self.name = str(machine.machine)
        self.cluster = cluster
        self.region = region
        self.gpus = machine.gpus
        self.gpu_model = str(machine.gpu_model)
        self.millicpus = capacity_millicpus(machine.cpus)
        self.mebibytes = capacity_mebibytes(machine.memory_gib)
        self.gpu_holders: list[str | None] = [None] * machine.gpus
        self.used_millicpus = 0
        self.used_mebibytes = 0
        self.running: dict[str, int] = {}
        """Claims on it by attempt."""
        self.lost: dict[str, None] = {}
        """Attempts that ran on it when it went down and have not ended yet."""
        self.state = MachineState.UP
        """As far as the log says: not that a machine on loan was asked back."""
        self.in_lost_cluster = False
        self.last_down_line = 0
        self.last_draining_line = 0


class Claim(NamedTuple):
    """What one task holds of one machine."""

    job: str
    task: int
    machine: MachineUse
    gpus: tuple[int, ...]
    millicpus: int
    mebibytes: int


class Machines:
    """All machines of the fleet."""

    def __init__(self, fleet: Fleet, findings: Findings) -> None:
        self.checks = 0
        self._findings = findings
        self._machines: dict[str, MachineUse] = {}
        for region in fleet.regions:
            for cluster in region.clusters:
                for machine in cluster.machines():
                    machine_use = MachineUse(machine, str(cluster.cluster), str(region.region))
                    self._machines[machine_use.name] = machine_use

    def takes_work(self, name: str) -> bool:
        """Whether new work may go to the machine of that name."""
        machine = self._machines[name]
        if machine.lost or machine.in_lost_cluster:
            return False
        return machine.state not in _UNUSABLE and machine.state is not MachineState.DRAINING

    def read_placement(self, placement: Sequence[Record], region: str) -> list[Claim]:
        """The claims of a placement; what no machine could give is reported and left out. Raises BadField."""
        claims: list[Claim] = []
        for entry in placement:
            name = text_field(entry, "machine")
            cluster = text_field(entry, "cluster")
            job = text_field(entry, "job")
            task = whole_field(entry, "task")
            gpus = tuple(wholes_field(entry, "gpus"))
            millicpus = request_millicpus(number_field(entry, "cpus"))
            mebibytes = request_mebibytes(number_field(entry, "memory_gib"))
            machine = self._machines.get(name)
            if machine is None:
                self._add(f"task {task} of job {job} is placed on machine {name}, which is not in the fleet")
                continue
            if machine.cluster != cluster or machine.region != region:
                self._add(
                    f"task {task} of job {job} is placed on machine {name} as in cluster {cluster} of region {region},"
                    f" but that machine is in cluster {machine.cluster} of region {machine.region}"
                )
            if gpus:
                within = tuple(dict.fromkeys(index for index in gpus if index < machine.gpus))
                if len(within) != len(gpus):
                    self._add(
                        f"task {task} of job {job} is placed on GPUs {list(gpus)} of machine {name}, which has"
                        f" {machine.gpus} GPUs, and a task holds a GPU once"
                    )
                    gpus = within
            claims.append(Claim(job, task, machine, gpus, millicpus, mebibytes))
        return claims

    def hold(self, attempt: str, claims: Sequence[Claim], already_on: frozenset[str] = frozenset()) -> None:
        """Charges the claims of an attempt that starts or changes; `already_on` are machines it held before."""
        for claim in claims:
            machine = claim.machine
            self.checks += 1
            if (machine.lost or machine.state in _UNUSABLE) and machine.name not in already_on:
                self._check_usable(attempt, machine)
            holders = machine.gpu_holders
            for index in claim.gpus:
                holder = holders[index]
                if holder is None:
                    holders[index] = attempt
                else:
                    self._add(f"GPU {index} of machine {machine.name} goes to {attempt} while {holder} holds it")
            machine.used_millicpus += claim.millicpus
            machine.used_mebibytes += claim.mebibytes
            if machine.used_millicpus > machine.millicpus and claim.millicpus:
                self._add(
                    f"machine {machine.name} has {machine.millicpus / 1000:g} CPUs, but with"
                    f" {claim.millicpus / 1000:g} more for {attempt} {machine.used_millicpus / 1000:g} are held"
                )
            if machine.used_mebibytes > machine.mebibytes and claim.mebibytes:
                self._add(
                    f"machine {machine.name} has {machine.mebibytes / 1024:g} GiB of memory, but with"
                    f" {claim.mebibytes / 1024:g} more for {attempt} {machine.used_mebibytes / 1024:g} are held"
                )
            machine.running[attempt] = machine.running.get(attempt, 0) + 1

    def still_lost(self, attempt: str, claims: Sequence[Claim], lost: frozenset[str]) -> None:
        """After a change of placement: on the machines that went down under it, the attempt has not ended."""
        for claim in claims:
            if claim.machine.name in lost:
                claim.machine.lost[attempt] = None

    def release(self, attempt: str, claims: Sequence[Claim]) -> None:
        """Gives back what `hold` charged."""
        for claim in claims:
            machine = claim.machine
            holders = machine.gpu_holders
            for index in claim.gpus:
                if holders[index] == attempt:
                    holders[index] = None
            machine.used_millicpus -= claim.millicpus
            machine.used_mebibytes -= claim.mebibytes
            left = machine.running[attempt] - 1
            if left:
                machine.running[attempt] = left
            else:
                del machine.running[attempt]
                machine.lost.pop(attempt, None)

    def was_lost_or_drained(self, name: str, since_line: int) -> bool:
        """Whether the machine of that name takes no work, or was lost or drained since that line."""
        machine = self._machines.get(name)
        if machine is None:
            return False
        return not machine.state.takes_work or max(machine.last_down_line, machine.last_draining_line) > since_line

    def lose_cluster(self, cluster: str) -> None:
        """All machines of the cluster are lost with what runs on them; their own states stay what they are."""
        for machine in self._of_cluster(cluster):
            machine.in_lost_cluster = True
            machine.last_down_line = self._findings.line
            machine.lost.update(dict.fromkeys(machine.running))

    def find_cluster(self, cluster: str) -> None:
        """The cluster is back."""
        for machine in self._of_cluster(cluster):
            machine.in_lost_cluster = False

    def attempts_in(self, cluster: str) -> list[str]:
        """The attempts that hold anything there, sorted."""
        return sorted({attempt for machine in self._of_cluster(cluster) for attempt in machine.running})

    def _of_cluster(self, cluster: str) -> list[MachineUse]:
        return [machine for machine in self._machines.values() if machine.cluster == cluster]

    def change_cluster(self, record: Record) -> None:
        """Takes note of machine_moved: only a drained machine moves, on which nothing is held. Raises BadField."""
        machine = self._named(record, "machine_moved")
        if machine is None:
            return
        if machine.state is not MachineState.DRAINING:
            self._add(f"machine {machine.name} moves while it is {machine.state.value}: it has to be drained before")
        if machine.running:
            holders = ", ".join(machine.running)
            self._add(f"machine {machine.name} moves while {holders} is on it")
        machine.cluster = text_field(record, "to_cluster")

    def change_state(self, record: Record, kind: str) -> None:
        """Takes note of machine_down, machine_up, machine_draining, loaned or reclaimed. Raises BadField."""
        machine = self._named(record, kind)
        if machine is None:
            return
        try:
            machine.state = _state_after(machine, kind, still_down=record.get("still_down") is True)
        except MachineTransitionRefused as refused:
            self._add(str(refused))
            return
        if kind == "machine_down":
            machine.last_down_line = self._findings.line
            machine.lost.update(dict.fromkeys(machine.running))
        elif kind == "machine_draining":
            machine.last_draining_line = self._findings.line
        elif kind == "reclaimed" and machine.running:
            self._add(f"machine {machine.name} goes back to inference while {next(iter(machine.running))} runs on it")

    def _named(self, record: Record, kind: str) -> MachineUse | None:
        """The machine that the record names; None: it is not in the fleet, which is reported. Raises BadField."""
        name = text_field(record, "machine")
        text_field(record, "reason")
        self.checks += 1
        machine = self._machines.get(name)
        if machine is None:
            self._add(f"{kind} names machine {name}, which is not in the fleet")
            return None
        place = (record.get("region"), record.get("cluster"))
        if place != (machine.region, machine.cluster):
            raise BadField(
                f"says that machine {name} is in cluster {place[1]} of region {place[0]},"
                f" but it is in cluster {machine.cluster} of region {machine.region}"
            )
        return machine

    def _check_usable(self, attempt: str, machine: MachineUse) -> None:
        if machine.state in _SERVING:
            self._add(f"{attempt} is put on machine {machine.name}, which serves inference and is not on loan")
        if machine.state.is_down:
            self._add(f"{attempt} is put on machine {machine.name}, which is down")
        others = [other for other in machine.lost if other != attempt]
        if others:
            self._add(
                f"{attempt} is put on machine {machine.name}, which was lost with {others[0]} on it, and that has not"
                " ended since"
            )

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I1, sentence)


def _state_after(machine: MachineUse, kind: str, *, still_down: bool) -> MachineState:
    """By the table of a machine's life; raises MachineTransitionRefused. `still_down`: its drain alone is undone."""
    state = machine.state
    if kind == "machine_up" and still_down:
        return next_machine_state(MachineId(machine.name), state, MachineHappening.UNDRAINED)
    if kind == "machine_up" and not state.is_down and state is not MachineState.DRAINING:
        # It is up, and that is said again.
        return state
    if kind in {"loaned", "reclaimed"} and state is MachineState.UP:
        # The first that is said of it: it is of an inference cluster.
        state = MachineState.SERVING
        if kind == "reclaimed":
            return state
    if kind == "reclaimed" and state.is_lent:
        state = next_machine_state(MachineId(machine.name), state, MachineHappening.ASKED_BACK)
    return next_machine_state(MachineId(machine.name), state, _happening(kind, state))


def _happening(kind: str, state: MachineState) -> MachineHappening:
    match kind:
        case "machine_down":
            return MachineHappening.FAILED
        case "machine_draining":
            return MachineHappening.DRAINED
        case "loaned":
            return MachineHappening.LENT
        case "reclaimed":
            return MachineHappening.HANDED_BACK
        case _:
            return MachineHappening.UNDRAINED if state is MachineState.DRAINING else MachineHappening.REPAIRED
