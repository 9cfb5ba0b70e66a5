"""Whether any region could ever host a workload, as asked at submission: ``python -m benchmarks.hosting_check``.

Two series: workloads whose shape was seen before, as nearly all are, and workloads each of a shape of its own.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from benchmarks.mast_region import WorkloadSource, mast_region
from benchmarks.measurement import report
from domain.identifiers import JobName
from domain.workload import WorkloadSpecification
from regional_scheduler.hosting import HostingRegions

BUDGET = "none of its own; submission in batches >= 12,000 per second, so <= 0.08 ms together with everything else"
REGIONS = ("east", "north", "west")
SEED = 1


def specifications(count: int) -> list[WorkloadSpecification]:
    """Workloads of MAST's sizes, a fifth of them with a second GPU job."""
    source = WorkloadSource(np.random.default_rng(SEED))
    made: list[WorkloadSpecification] = []
    for _ in range(count):
        specification = source.as_in_mast().specification
        if source.generator.random() < 0.2:
            second = replace(source.gpu_job(8), name=JobName("evaluator"))
            specification = replace(specification, jobs=(*specification.jobs, second))
        made.append(specification)
    return made


def measure(name: str, regions: HostingRegions, asked: list[WorkloadSpecification]) -> None:
    """Asks about each of them once."""
    durations_s: list[float] = []
    refused = 0
    for specification in asked:
        started_s = time.perf_counter()
        refusal = regions.refusal(specification)
        durations_s.append(time.perf_counter() - started_s)
        refused += refusal is not None
    work = {"regions": len(REGIONS), "clusters_of_each": 20, "workloads": len(asked), "seed": SEED}
    extra = {"refused": refused, "per_s": round(len(asked) / sum(durations_s))}
    report(name, work, durations_s, BUDGET, extra)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the check whether a workload could ever be hosted.")
    parser.add_argument("--workloads", type=int, default=20_000, help="workloads per series")
    count = parser.parse_args().workloads
    regions = HostingRegions(mast_region(name) for name in REGIONS)
    asked = specifications(count)
    measure("hosting_check_new_shapes", regions, asked)
    measure("hosting_check_known_shapes", regions, asked)


if __name__ == "__main__":
    main()
