"""Which runs there are: the rows of Lyra's Table 5, and its sweeps over checkpoints, estimates and scaling (§7.2-§7.4)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from domain.identifiers import GpuModel
from formats.trace import TraceRow
from regional_scheduler.elastic.lyra import LyraElastic
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost
from regional_scheduler.reclaiming.random_machines import RandomMachines
from simulator.baselines.fifo import FIFO, YARN_CS
from simulator.baselines.lyra import AFS, GANDIVA_ELASTIC, LYRA, LYRA_ELASTIC_ONLY, LYRA_LOANING_ONLY
from simulator.inputs.regions import anywhere
from simulator.policies.policy import Policy

DAY_S = 86_400.0
GPUS_PER_MACHINE = 8
FILE = "venus_jobs.csv.gz"
FROM_DAY, DAYS, FEW_DAYS = 16.0, 10.0, 4.0
LOAD, HIGH_LOAD = 1.0, 1.3
SERIES = "inference_gpu_utilisation.csv"
INFERENCE_PER_TRAINING_GPU = 4160 / 3544
"""As in Lyra §7.1."""
TRAINING_MODEL, INFERENCE_MODEL = GpuModel("V100"), GpuModel("T4")
LOANED_PER_TRAINING_GPU = 2
"""A T4 has half the memory of the V100s, so a fungible job has twice the workers there."""
FUNGIBLE_LOAD, ELASTIC_LOAD, HETEROGENEOUS_JOBS = 0.21, 0.36, 0.1
"""Lyra §7.1, the Basic and the Advanced scenario."""
CHECKPOINT_S = 600.0
ROUND_S = 120.0
"""Lyra decides on jobs far more often than on loans (§3)."""
RUN_SEED = 1
_PARTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    section: str
    """Of the document."""
    name: str
    policy: str
    scenario: str = "Basic"
    checkpointing: float = 0.0
    wrong_estimates: float = 0.0
    scaling_loss: float = 0.0
    load: float = LOAD
    days: float = DAYS
    """How long the window is, from its first day on."""
    most_times: int = 2
    """How many times its tasks an elastic job may have."""
    elastic_on_loans: bool = False
    """Whether fungible jobs are elastic ones as far as there are any, so that what is on loan makes jobs faster."""


POLICIES: dict[str, Policy] = {
    "fifo": replace(FIFO, uses_loans=False),
    "blocking": replace(YARN_CS, uses_loans=False),
    "lyra": LYRA,
    "lyra, cheap": replace(LYRA, elastic=LyraElastic(resize_pause_s=1.0, loss_weight=1.0)),
    "loaning": LYRA_LOANING_ONLY,
    "loaning, least cost": replace(LYRA_LOANING_ONLY, reclaiming=LeastPreemptionCost()),
    "loaning, SCF": replace(LYRA_LOANING_ONLY, reclaiming=FewestWorkloadsFirst()),
    "loaning, random": replace(LYRA_LOANING_ONLY, reclaiming=RandomMachines()),
    "opportunistic": replace(FIFO, reclaiming=RandomMachines()),
    "elastic": LYRA_ELASTIC_ONLY,
    "afs": AFS,
    "gandiva": GANDIVA_ELASTIC,
}
OPPORTUNISTIC = "opportunistic"


def all_cases() -> tuple[Case, ...]:
    """Every run of the document."""
    return (
        Case("overall", "Baseline (FIFO)", "fifo"),
        *(Case("overall", f"Lyra, {name}", "lyra", name) for name in ("Basic", "Advanced", "Heterogeneous", "Ideal")),
        Case("loaning", "Opportunistic", OPPORTUNISTIC),
        Case("loaning", "Random", "loaning, random"),
        Case("loaning", "SCF", "loaning, SCF"),
        Case("loaning", "Lyra's heuristic", "loaning, least cost"),
        Case("loaning", "Fewest evictions", "loaning"),
        *(
            Case("full", name, policy, "Fungible", load=HIGH_LOAD, days=FEW_DAYS)
            for name, policy in (
                ("Random", "loaning, random"),
                ("SCF", "loaning, SCF"),
                ("Lyra's heuristic", "loaning, least cost"),
                ("Fewest evictions", "loaning"),
            )
        ),
        Case("scaling", "Gandiva", "gandiva"),
        Case("scaling", "AFS", "afs"),
        Case("scaling", "Lyra", "elastic"),
        *(Case("checkpoints", f"{share:.0%}", "loaning", checkpointing=share) for share in (0.2, 0.4, 0.6, 0.8)),
        *(Case("estimates", f"{share:.0%}", "elastic", wrong_estimates=share) for share in (0.2, 0.4, 0.6)),
        *(Case("imperfect", name, "lyra", name, scaling_loss=0.2) for name in ("Basic", "Ideal")),
        Case("reasons", "FIFO that blocks", "blocking"),
        Case("reasons", "a resize costs 1 s, losses count once", "lyra, cheap"),
        Case("reasons", "up to 4 times the tasks", "lyra", most_times=4),
        Case("reasons", "fungible jobs are elastic", "lyra", elastic_on_loans=True),
    )


def rows_of(rows: Sequence[TraceRow], case: Case) -> tuple[TraceRow, ...]:
    """What is submitted in the window: which jobs are elastic, fungible or save checkpoints is drawn from their names."""
    from_s, until_s = FROM_DAY * DAY_S, (FROM_DAY + case.days) * DAY_S
    window = [row for row in rows if from_s <= row.submit_s < until_s and row.gpus > 0]
    ideal = case.scenario == "Ideal"
    elastic = _drawn(window, ELASTIC_LOAD, "elastic", lambda row: row.gpus >= 2 and row.duration_s >= 3600.0)
    fungible = frozenset[str]()
    if case.scenario != "Heterogeneous":
        fungible = _drawn(
            window, FUNGIBLE_LOAD, "fungible", lambda row: not case.elastic_on_loans or row.workload_id in elastic
        )
    made = []
    for row in window:
        scales = ideal or row.workload_id in elastic
        workers = row.gpus // 2 if row.gpus % 2 == 0 else row.gpus
        saves = _share("checkpoint", row) < case.checkpointing
        moves = ideal or case.scenario == "Fungible" or row.workload_id in fungible
        made.append(
            replace(
                row,
                gpu_model=INFERENCE_MODEL if moves and case.policy == OPPORTUNISTIC else TRAINING_MODEL,
                gpus=row.gpus * (LOANED_PER_TRAINING_GPU if moves and case.policy == OPPORTUNISTIC else 1),
                tasks=workers,
                min_tasks=workers if scales else None,
                max_tasks=case.most_times * workers if scales else None,
                fungible=moves,
                checkpoint_s=CHECKPOINT_S if saves else None,
            )
        )
    return anywhere(made)


def training_gpus(rows: Sequence[TraceRow], case: Case) -> int:
    """So many that what the window submits is `case.load` times what they can do in it, in whole machines."""
    offered = sum(row.gpus * row.duration_s for row in rows) / (case.days * DAY_S)
    return max(math.ceil(offered / case.load / GPUS_PER_MACHINE) * GPUS_PER_MACHINE, 2 * max(row.gpus for row in rows))


def _drawn(
    rows: Sequence[TraceRow], load: float, what: str, may: Callable[[TraceRow], bool] = lambda row: True
) -> frozenset[str]:
    """Jobs that are together so much of the load, in the order of their checksums."""
    left = load * sum(row.gpus * row.duration_s for row in rows)
    drawn: set[str] = set()
    for row in sorted((row for row in rows if may(row)), key=lambda row: (_share(what, row), row.workload_id)):
        if left <= 0:
            break
        left -= row.gpus * row.duration_s
        drawn.add(str(row.workload_id))
    return frozenset(drawn)


def _share(what: str, row: TraceRow) -> float:
    return zlib.crc32(f"{what}:{row.workload_id}".encode()) % _PARTS / _PARTS
