"""The data directory of a region: ``python -m benchmarks.table_directory [--tables N]``.

A million tables in 20 regions enter the catalog in memory; then single questions are asked: which regions hold this table,
anyhow, fresh, or at most so far behind. Times are the processor's, per table.
"""

import argparse
import gc
import time

import numpy as np
import psutil

from benchmarks.measurement import report
from data_placement.catalog import Catalog
from domain.identifiers import RegionId, TableId
from domain.workload import TableInput

SEED = 1
REGIONS = 20
QUESTIONS = 100_000
BATCH = 100
BUDGET = "< 10 us a table at 1,000,000 tables"


def filled(tables: int) -> tuple[Catalog, float, float]:
    """The catalog, the longest time that one table took to enter, and by how many MiB the process has grown."""
    rng = np.random.default_rng(SEED)
    regions = [RegionId(f"region{place:02d}") for place in range(REGIONS)]
    home, copies = rng.integers(0, REGIONS, tables), rng.integers(0, 3, tables)
    before = psutil.Process().memory_info().rss
    catalog, longest_s = Catalog(), 0.0
    for place in range(tables):
        at = int(home[place])
        replicas = [regions[(at + 1 + copy) % REGIONS] for copy in range(int(copies[place]))]
        lags = ((replicas[0], 3600.0),) if replicas and place % 10 == 0 else ()
        begun_s = time.process_time()
        catalog.enter(TableId(f"team{place % 800:03d}.table{place:07d}"), place, regions[at], replicas, lags)
        longest_s = max(longest_s, time.process_time() - begun_s)
    return catalog, longest_s, (psutil.Process().memory_info().rss - before) / 2**20


def measure(tables: int) -> None:
    """One catalog: a line of JSON."""
    catalog, longest_s, grown_mib = filled(tables)
    rng = np.random.default_rng(SEED)
    kinds = ((False, None), (True, None), (False, 60.0))
    asked = [
        TableInput(TableId(f"team{place % 800:03d}.table{place:07d}"), *kinds[place % 3])
        for place in rng.integers(0, tables, QUESTIONS).tolist()
    ]
    durations_s: list[float] = []
    for begin in range(0, QUESTIONS, BATCH):
        some = asked[begin : begin + BATCH]
        begun_s = time.process_time()
        for question in some:
            catalog.regions_holding(question)
        durations_s.append((time.process_time() - begun_s) / len(some))
    begun_s = time.process_time()
    gc.collect()
    collected_s = time.process_time() - begun_s
    found = {"grown_mib": grown_mib, "longest_entry_s": longest_s, "garbage_collection_s": collected_s}
    report("table_directory", {"tables": tables, "regions": REGIONS, "seed": SEED}, durations_s, BUDGET, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1_000_000)
    measure(parser.parse_args().tables)


if __name__ == "__main__":
    main()
