"""Small warehouses for tests."""

import numpy as np

from domain.warehouse import Jobs, Regions, Tables, Warehouse


def small_warehouse(seed: int, tables: int = 7, jobs: int = 9, regions: int = 3, *, roomy: bool = False) -> Warehouse:
    """Two GPU models, two priorities, two applications. `roomy`: no limit is ever exceeded."""
    rng = np.random.default_rng(seed)
    reads = [np.sort(rng.choice(tables, rng.integers(1, 4), replace=False)) for _ in range(jobs)]
    training = rng.random(jobs) < 0.6
    storage = np.full(regions, 1e9) if roomy else rng.uniform(40.0, 90.0, regions)
    quotas = np.full((2, regions), 1e9) if roomy else rng.uniform(5.0, 30.0, (2, regions))
    return Warehouse(
        Regions(
            names=tuple(f"region{place}" for place in range(regions)),
            storage_bytes=storage,
            gpu_models=("A100", "V100"),
            gpu_hours=rng.uniform(0.0, 50.0, (2, regions)) * (rng.random((2, regions)) < 0.8),
            applications=("daily", "weekly"),
            cpu_hours=quotas,
        ),
        Tables(
            [f"table{place}" for place in range(tables)],
            rng.integers(1, 20, tables),
            rng.integers(0, regions, tables).astype(np.int32),
            np.zeros(tables, np.int64),
        ),
        Jobs(
            names=[f"job{place}" for place in range(jobs)],
            training=training,
            gpu_model=np.where(training, rng.integers(0, 2, jobs), -1).astype(np.int32),
            priority=rng.integers(0, 2, jobs).astype(np.int32),
            priorities=(0, 1),
            gpu_hours=np.where(training, rng.uniform(1.0, 20.0, jobs), 0.0),
            cpu_hours=np.where(training, 0.0, rng.uniform(1.0, 9.0, jobs)),
            application=np.where(training, -1, rng.integers(0, 2, jobs)).astype(np.int32),
            weight=rng.uniform(0.5, 2.0, jobs),
            table_start=np.concatenate([[0], np.cumsum([len(each) for each in reads])]),
            tables=np.concatenate(reads).astype(np.int32),
        ),
    )
