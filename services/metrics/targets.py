"""How a Prometheus on the same machine finds what to read: a file for each process that serves metrics, in a folder of TOPMAST_HOME.

The files are what `file_sd_configs` of Prometheus reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def targets_folder(home: Path) -> Path:
    """Holds the files; all that end in `.json` count."""
    return home / "metrics"


@contextmanager
def announced_target(home: Path, name: str, address: str) -> Iterator[None]:
    """While the context lasts the process of that name is known to serve metrics at `host:port`."""
    target = targets_folder(home) / f"{name.replace('/', '-')}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    # Whole at any moment at which Prometheus reads it.
    written = target.with_suffix(".new")
    written.write_text(json.dumps([{"targets": [address], "labels": {"process": name}}]) + "\n", encoding="utf-8")
    written.replace(target)
    try:
        yield
    finally:
        target.unlink(missing_ok=True)


def served_metrics(home: Path) -> tuple[str, ...]:
    """Where processes of this home serve metrics, as they have announced it; one that was killed may still be named."""
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(targets_folder(home).glob("*.json"))]
    return tuple(address for groups in documents for group in groups for address in group["targets"])
