"""Two small clusters that the demo adds to its fleet: one that lends its machines, and one for its staged workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from domain.identifiers import GpuModel, RegionId
from domain.table import Table

_STEP_S = 1_800.0
_BUSY = (0.9, 0.4, 0.2, 0.2, 0.6, 0.9)
"""The share of the machines that inference needs, a step each: again and again, so that machines are lent and come back."""

STAGED_MODEL = GpuModel("P100")
"""No other cluster has such GPUs, so that what asks for them runs in the staged one."""
STAGED_MACHINES = 2
STAGED_GPUS_PER_MACHINE = 4


def with_small_clusters(fleet_file: Path, home: Path, tables: Sequence[Table]) -> Path:
    """Writes the fleet into the home, with two clusters more in its second region, the load that inference has there, and
    these tables instead of its own.
    """
    series = home / "inference_load.csv"
    lines = [f"{step * _STEP_S:g},{busy:g}" for step, busy in enumerate(_BUSY)]
    series.write_text("\n".join(["t_s,busy_pod_fraction", *lines]) + "\n", encoding="utf-8")
    fleet: dict[str, Any] = yaml.safe_load(fleet_file.read_text(encoding="utf-8"))
    fleet["tables"] = [
        {
            "table": str(table.table),
            "size_gib": table.size_bytes / 2**30,
            "home": str(table.home),
            "replicas": [str(region) for region in table.replicas],
        }
        for table in tables
    ]
    region = fleet["regions"][1]
    region["clusters"] += [
        {
            "cluster": f"{region['region']}-serving",
            "inference": {"series": str(series), "look_every_s": 300, "forecast": "persistence"},
            "machine_groups": [
                {"count": 4, "machines_per_rack": 4, "gpu_model": "T4", "gpus": 4, "cpus": 48, "memory_gib": 192}
            ],
        },
        {
            "cluster": f"{region['region']}-staged",
            "machine_groups": [
                {
                    "count": STAGED_MACHINES,
                    "machines_per_rack": STAGED_MACHINES,
                    "gpu_model": str(STAGED_MODEL),
                    "gpus": STAGED_GPUS_PER_MACHINE,
                    "cpus": 24,
                    "memory_gib": 192,
                }
            ],
        },
    ]
    written = home / "fleet.yaml"
    written.write_text(yaml.safe_dump(fleet, sort_keys=False), encoding="utf-8")
    return written


def with_storage(configuration_file: Path, home: Path, storage: Mapping[RegionId, Path]) -> Path:
    """Writes the configuration into the home, with the folders where the regions store tables."""
    configuration: dict[str, Any] = yaml.safe_load(configuration_file.read_text(encoding="utf-8"))
    regions = {str(region): {"storage": folder.as_uri()} for region, folder in sorted(storage.items())}
    configuration.setdefault("data", {})["regions"] = regions
    written = home / "scheduler.yaml"
    written.write_text(yaml.safe_dump(configuration, sort_keys=False), encoding="utf-8")
    return written
