"""The service under load: `topmast up` in a home of its own, with emulated execution, tiers as processes and a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.service_world import many_machines
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.database.embedded import EmbeddedLayout
from services.runtime.executor_kind import ExecutorKind
from services.runtime.host_options import HostOptions
from services.runtime.local import down, up
from services.runtime.tier_place import TierProcesses
from services.security.home_tokens import home_token


@dataclass(frozen=True, slots=True)
class Stack:
    """A living service, and how it is reached."""

    home: Path
    address: str
    token: str | None
    database_url: str


@contextmanager
def live_stack(
    fleet: Fleet | None = None,
    tenants: Sequence[str] = ("load",),
    configuration: str = "",
    clock_speed: float | None = None,
) -> Iterator[Stack]:
    """Brings a service up, and takes it down with all that it wrote. Raises what `topmast up` raises."""
    home = Path(tempfile.mkdtemp(prefix="topmast-load-"))
    try:
        quota = Quota.of({ANY_GPU_MODEL: 1_000_000})
        members = [Tenant(TenantId(name), 2, quota) for name in tenants]
        (home / "fleet.yaml").write_text(dump_fleet(fleet or many_machines(1, 2, 120)), encoding="utf-8")
        (home / "tenants.yaml").write_text(dump_tenants(members), encoding="utf-8")
        (home / "topmast.yaml").write_text(configuration, encoding="utf-8")
        service = up(
            HostOptions(
                home=home,
                port=0,
                fleet_file=home / "fleet.yaml",
                tenants_file=home / "tenants.yaml",
                configuration_file=home / "topmast.yaml" if configuration else None,
                clock_speed=clock_speed,
                executor=ExecutorKind.EMULATED,
                tiers=TierProcesses.SEPARATE,
            )
        )
        yield Stack(home, service.address, home_token(home), EmbeddedLayout.of(home).url())
    finally:
        down(home)
        shutil.rmtree(home, ignore_errors=True)
