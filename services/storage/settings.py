"""The section `storage` of scheduler.yaml: where a service keeps files that several tiers need, and how many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from formats.data_section import storage_url
from formats.problems import FieldProblem, FormatError
from formats.schema import Schema
from services.storage.protocols import protocol_problem
from services.storage.store_urls import StoreUrls

_MIB = 2**20
_DAY_S = 86_400.0

StorageUrl = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(storage_url)]


class StorageSettings(Schema):
    """The same for all tiers: what one of them stores another one reads, on another machine perhaps."""

    packages: StorageUrl | None = None
    """A folder for packages (the files of working directories), as fsspec names it; null: `packages` in TOPMAST_HOME."""
    checkpoints: StorageUrl | None = None
    """The same for checkpoints: each is copied there once it is complete. Null: they stay in the TOPMAST_HOME of their cluster."""
    logs: StorageUrl | None = None
    """The same for what tasks print."""
    greatest_package_bytes: int = Field(default=512 * _MIB, ge=1, le=2**40)
    greatest_package_entries: int = Field(default=50_000, ge=1, le=10_000_000)
    """Files, links and folders of a package."""
    greatest_tenant_package_bytes: int | None = Field(default=64 * 1024 * _MIB, ge=1, le=2**60)
    """Of all packages that were uploaded for a tenant; null: no bound."""
    unused_packages_kept_real_s: float = Field(default=7 * _DAY_S, ge=60.0, le=36_525 * _DAY_S)
    """So long after the last workload that names it has ended, or was submitted, a package is kept."""

    def packages_url(self, home: Path) -> str:
        """Where packages are; `home` is the TOPMAST_HOME of who asks."""
        return self.packages or f"file://{home.absolute() / 'packages'}"

    def urls(self, home: Path) -> StoreUrls:
        """All that the machines of a cluster store and fetch; `home` is that of its manager."""
        return StoreUrls(self.packages_url(home), self.checkpoints or "", self.logs or "")

    def check(self, source: str = "scheduler.yaml") -> None:
        """Raises FormatError for storage that cannot be reached from here."""
        urls = {"packages": self.packages, "checkpoints": self.checkpoints, "logs": self.logs}
        problems = {name: protocol_problem(url) for name, url in urls.items() if url is not None}
        told = [FieldProblem(f"storage.{name}", problem) for name, problem in problems.items() if problem is not None]
        if told:
            raise FormatError(source, told)
