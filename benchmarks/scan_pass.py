"""The scan pass in memory: ``python -m benchmarks.scan_pass [--pending N ...]``.

Three measurements for each size of the queue: the pass over a ready view; building the view from columns of Python
values as a database driver returns them; and, within the first, how many tuples the next pass would change.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.measurement import report
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.scan_view import ScanView
from global_scheduler.usage_window import WindowedUse
from global_scheduler.view_builder import PendingRows, RunningRows, build_scan_view

_TENANTS = 500
_RUNNING = 10_000
_NOW_S = 1_700_000_000.0
_MODELS = (GpuModel("A100"), GpuModel("H100"), GpuModel("V100"))
_PRIORITY_SHARES = (0.03, 0.20, 0.16, 0.54, 0.002, 0.005, 0.063)
"""MAST §4.2: workloads by priority, highest first; those without one are at the lowest."""
_BUDGETS = {
    100_000: "scan pass, in memory: 100,000 pending, 500 tenants: <= 15 ms p50",
    1_000_000: "scan pass, in memory: 1,000,000 pending: <= 0.2 s",
}


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """Everything that a view is built from."""

    tenants: tuple[Tenant, ...]
    use: dict[TenantId, WindowedUse]
    running: RunningRows
    pending: PendingRows

    def view(self) -> ScanView:
        return build_scan_view(self.tenants, self.use, self.running, self.pending, ScanSettings())


def make_world(pending: int, generator: np.random.Generator) -> StoredQueue:
    """A queue of three days; a few tenants have most of it, and about half of it is within quota."""
    priorities = generator.choice(7, size=_TENANTS, p=np.array(_PRIORITY_SHARES) / sum(_PRIORITY_SHARES))
    popularity = 1.0 / np.arange(1, _TENANTS + 1)
    popularity /= popularity.sum()
    mean_gpus = 24 * pending * popularity
    tenants = tuple(
        Tenant(
            TenantId(f"tenant-{index:03}"),
            int(priorities[index]),
            Quota.of(
                {GpuModel("H100"): int(mean_gpus[index] * 0.4), ANY_GPU_MODEL: int(mean_gpus[index] * 0.5)},
                None if index % 2 else float(mean_gpus[index] * 10),
            ),
            1.0 + index % 3,
        )
        for index in range(_TENANTS)
    )
    use = {tenant.tenant: WindowedUse(float(generator.exponential(40.0)), 100.0) for tenant in tenants}
    return StoredQueue(tenants, use, _running(generator, popularity), _pending(pending, generator, popularity))


def _pending(count: int, generator: np.random.Generator, popularity: NDArray[np.float64]) -> PendingRows:
    owners = generator.choice(_TENANTS, size=count, p=popularity).tolist()
    models = generator.integers(len(_MODELS), size=count).tolist()
    several = (generator.random(count) < 0.02).tolist()
    submitted_s = (_NOW_S - np.sort(generator.uniform(0.0, 72 * 3600.0, size=count))[::-1]).tolist()
    return PendingRows(
        workloads=[WorkloadId(f"w-{number:08}") for number in range(count)],
        tenants=[TenantId(f"tenant-{owner:03}") for owner in owners],
        submitted_s=submitted_s,
        gpu_model=[str(_MODELS[model]) for model in models],
        gpus=generator.choice([1, 8, 16, 32, 64, 128], size=count).tolist(),
        cpus=np.where(generator.random(count) < 0.3, 400.0, 0.0).tolist(),
        more_gpus=[{"T4": 4} if more else None for more in several],
        stored_priority=[None] * count,
        stored_level=[0] * count,
        stored_credit=[0.0] * count,
        stored_within_quota=[False] * count,
        queued_since_s=submitted_s,
        attained_gpu_s=[0.0] * count,
        attained_s=[0.0] * count,
        first_started_s=[math.inf] * count,
    )


def _running(generator: np.random.Generator, popularity: NDArray[np.float64]) -> RunningRows:
    owners = generator.choice(_TENANTS, size=_RUNNING, p=popularity).tolist()
    started_s = (_NOW_S - generator.uniform(0.0, 48 * 3600.0, size=_RUNNING)).tolist()
    return RunningRows(
        workloads=[WorkloadId(f"r-{number:08}") for number in range(_RUNNING)],
        attempts=[1] * _RUNNING,
        tenants=[TenantId(f"tenant-{owner:03}") for owner in owners],
        started_s=started_s,
        priority=[6] * _RUNNING,
        level=[0] * _RUNNING,
        within_quota=(generator.random(_RUNNING) < 0.5).tolist(),
        leaving=(generator.random(_RUNNING) < 0.01).tolist(),
        charges=[{"H100": 8} if number % 3 else {"any": 16, "cpus": 400_000} for number in range(_RUNNING)],
        gpus=[8 if number % 3 else 16 for number in range(_RUNNING)],
        submitted_s=started_s,
        working_since_s=started_s,
        attained_gpu_s=[0.0] * _RUNNING,
    )


def after_pass(world: StoredQueue, view: ScanView) -> StoredQueue:
    """The world once the first pass is stored."""
    plan = scan_pass(view, _NOW_S)
    pending = replace(
        world.pending,
        stored_priority=plan.priority.tolist(),
        stored_level=plan.level.tolist(),
        stored_credit=plan.credit.tolist(),
        stored_within_quota=plan.within_quota.tolist(),
    )
    within = view.running.within_quota.copy()
    priority = view.running.priority.copy()
    for change in plan.reclassifications:
        within[change.row] = change.within_quota
        priority[change.row] = change.standing.priority
    row_of = {name: row for row, name in enumerate(view.running.workloads)}
    rows = [row_of[name] for name in world.running.workloads]
    running = replace(world.running, within_quota=within[rows], priority=priority[rows])
    return replace(world, pending=pending, running=running)


def durations_of(repetitions: int, work: Callable[[], object]) -> list[float]:
    """Seconds of each repetition; a first one, which compiles, is not counted."""
    work()
    durations_s = []
    for _ in range(repetitions):
        started_s = time.perf_counter()
        work()
        durations_s.append(time.perf_counter() - started_s)
    return durations_s


def measure(pending: int) -> None:
    """Measure one size of the queue."""
    repetitions = 50 if pending <= 100_000 else 10
    world = make_world(pending, np.random.default_rng(1))
    first = world.view()
    stored_world = after_pass(world, first)
    view = stored_world.view()
    plan = scan_pass(view, _NOW_S + 3.0)
    work = {"pending": pending, "tenants": _TENANTS, "running": _RUNNING, "seed": 1}
    budget = _BUDGETS.get(pending, "none")
    report(
        "scan_pass",
        work,
        durations_of(repetitions, lambda: scan_pass(view, _NOW_S + 3.0)),
        budget,
        {
            "within_quota": int(plan.within_quota.sum()),
            "reclassified_in_first_pass": len(scan_pass(first, _NOW_S).reclassifications),
            "changed_after_3_s": len(plan.changed),
            "changed_after_60_s": len(scan_pass(view, _NOW_S + 60.0).changed),
        },
    )
    report("scan_pass_view", work, durations_of(max(3, repetitions // 5), stored_world.view), "none of its own")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the scan pass.")
    parser.add_argument("--pending", type=int, nargs="+", default=sorted(_BUDGETS))
    for pending in parser.parse_args().pending:
        measure(pending)


if __name__ == "__main__":
    main()
