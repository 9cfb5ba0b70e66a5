"""I6: who owns cells never waits for them: a request that its virtual cluster has room for finds its place (HiveD §3.2).

A log does not say which virtual cells are in use, but of tenants that own whole machines of a hierarchy and nothing else
there it can be told: as many of their cells are in use as machines have guaranteed work of theirs, or tasks of theirs with more CPUs or memory than the share of
their GPUs, which leave by the common rule of eviction. A workload within quota of one job, whose
tasks fit on machines that its tenant owns and does not use, must not be found waiting for room. While machines of the
hierarchy are out of use nothing is checked, and work that is leaving counts as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster_manager.cells.hierarchy import Chain, chains_of
from domain.fleet import Cluster, Fleet, Machine
from domain.identifiers import ANY_GPU_MODEL
from simulator.validation.gangs import JobDemand
from simulator.validation.lives import AttemptLife, WorkloadLife
from simulator.validation.machines import Claim, Machines
from simulator.validation.record_fields import Record
from simulator.validation.report import Findings, Invariant

_OF_ROOM = frozenset({"no_room", "known_to_fail", "no_room_together", "topology", "jobs_do_not_fit_together"})
"""The reasons to wait that owned cells rule out."""


@dataclass(slots=True)
class _OwnedMachines:
    """What one tenant owns of one hierarchy: machines."""

    cells: int
    shape: Machine
    """Any of them: they are alike."""
    region: str
    machines: tuple[str, ...]
    """All of the hierarchy."""
    in_use: dict[str, dict[str, None]] = field(default_factory=dict)
    """The tenant's attempts by machine: those that use cells there, and such as hold more than the share of their GPUs."""

    def hold(self, attempt: str, machines: Sequence[str]) -> None:
        for machine in machines:
            if machine in self.machines:
                self.in_use.setdefault(machine, {})[attempt] = None

    def let_go(self, attempt: str, machines: Sequence[str]) -> None:
        for machine in machines:
            there = self.in_use.get(machine, {})
            there.pop(attempt, None)
            if not there:
                self.in_use.pop(machine, None)

    def holds(self, job: JobDemand) -> bool:
        """Whether the job fits on the machines that the tenant does not use."""
        per_machine = _tasks_on(self.shape, job)
        return per_machine > 0 and -(-job.tasks // per_machine) <= self.cells - len(self.in_use)


class SharingSafety:
    """Compares waits with what their tenants own."""

    def __init__(self, fleet: Fleet, machines: Machines, findings: Findings) -> None:
        self.checks = 0
        self._machines = machines
        self._findings = findings
        self._owned: dict[str, list[_OwnedMachines]] = {}
        self._over_quota: set[str] = set()
        for region in fleet.regions:
            for cluster in region.clusters:
                if cluster.has_cells:
                    self._take(cluster, str(region.region))

    def ranked(self, workload: str, *, within_quota: bool) -> None:
        """The workload waits within its tenant's quota, or beyond it."""
        if within_quota:
            self._over_quota.discard(workload)
        else:
            self._over_quota.add(workload)

    def dispatched(self, life: WorkloadLife, attempt: AttemptLife) -> None:
        """The attempt uses cells from now on, if it does, and the CPUs of machines."""
        in_cells = attempt.virtual_cluster == life.tenant
        held = [claim.machine.name for claim in attempt.planned if in_cells or _exceeds_its_share(claim)]
        for owned in self._owned.get(life.tenant, ()):
            owned.hold(attempt.name, held)

    def ended(self, life: WorkloadLife, attempt: AttemptLife) -> None:
        """The attempt has left its machines."""
        for owned in self._owned.get(life.tenant, ()):
            owned.let_go(attempt.name, [claim.machine.name for claim in (*attempt.planned, *attempt.claims)])

    def waiting(self, life: WorkloadLife, reason: str | None) -> None:
        """The workload was found without a place, for this reason."""
        if reason not in _OF_ROOM or life.name in self._over_quota or life.tables or len(life.jobs) != 1:
            return
        (job,) = life.jobs.values()
        if job.gpus == 0:
            return
        for owned in self._owned.get(life.tenant, ()):
            if life.regions and owned.region not in life.regions:
                continue
            if job.gpu_model not in (ANY_GPU_MODEL, owned.shape.gpu_model) or self._any_out_of_use(owned):
                continue
            self.checks += 1
            if owned.holds(job):
                self._findings.add(
                    Invariant.I6,
                    f"waits for room ({reason}), though {owned.cells - len(owned.in_use)} of the {owned.cells} machines "
                    f"that tenant {life.tenant} owns are not in use by guaranteed work of its own",
                )

    def _any_out_of_use(self, owned: _OwnedMachines) -> bool:
        return any(not self._machines.takes_work(machine) for machine in owned.machines)

    def _take(self, cluster: Cluster, region: str) -> None:
        there = {machine.machine: machine for machine in cluster.machines()}
        for chain in chains_of(cluster, cluster.cells.hierarchies):
            for owner in cluster.cells.virtual_clusters:
                here = [cells for cells in owner.cells if cells.chain == chain.name and cells.cells]
                pinned = any(pin.chain == chain.name for pin in owner.pinned)
                if not pinned and here and all(_is_machine(chain, cells.level) for cells in here):
                    owned = _OwnedMachines(
                        sum(cells.cells for cells in here),
                        there[chain.machines[0]],
                        region,
                        tuple(str(machine) for machine in chain.machines),
                    )
                    self._owned.setdefault(str(owner.virtual_cluster), []).append(owned)


def reason_of_wait(record: Record) -> str | None:
    """The reason that the diagnosis of a `waiting` event names; None without one."""
    diagnosis = record.get("diagnosis")
    reason = diagnosis.get("reason") if isinstance(diagnosis, dict) else None
    return reason if isinstance(reason, str) else None


def _is_machine(chain: Chain, level: str) -> bool:
    return chain.level_called(level) == chain.machine_level


def _exceeds_its_share(claim: Claim) -> bool:
    """Whether the task holds more CPUs or memory than the part of the machine that its GPUs are."""
    machine, gpus = claim.machine, len(claim.gpus)
    cpus, memory = claim.millicpus * machine.gpus, claim.mebibytes * machine.gpus
    return cpus > machine.millicpus * gpus or memory > machine.mebibytes * gpus


def _tasks_on(machine: Machine, job: JobDemand) -> int:
    """Tasks of the job that fit on an empty machine."""
    fit = machine.gpus // job.gpus
    if job.millicpus:
        fit = min(fit, int(machine.cpus * 1000) // job.millicpus)
    if job.mebibytes:
        fit = min(fit, int(machine.memory_gib * 1024) // job.mebibytes)
    return fit
