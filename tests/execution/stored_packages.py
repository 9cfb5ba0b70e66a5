"""Packages in a store, as clients and the global scheduler put them there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from services.execution.executor import AttemptOrder
from services.storage.package_folder import PackageFolder
from topmast.working_directory import PackageLimits, pack_folder

AMPLE = PackageLimits(greatest_bytes=1 << 30, greatest_entries=10_000)


def stored(folder: Path, url: str) -> str:
    """Packs the folder into the store; the name of the package."""
    with pack_folder(folder, AMPLE) as package, PackageFolder(url).write(package.name) as writer:
        for part in package.parts():
            writer.write(part.content)
        writer.finish()
    return package.name


def project(folder: Path, **files: str) -> Path:
    """A folder with these files (`train_py` is train.py), of which the scripts can be executed."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / ".".join(name.rsplit("_", 1))
        path.write_text(content)
        if path.suffix == ".sh":
            path.chmod(0o755)
    return folder


def naming(order: AttemptOrder, package: str) -> AttemptOrder:
    """The order of a workload that names the package."""
    return replace(order, specification=replace(order.specification, package=package))
