"""What the demo plays on: its fleet, tenants, configuration, warehouse and profiles, as files of its home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from domain.fleet import Fleet
from domain.identifiers import RegionId
from domain.sensitivity import SensitivityProfile
from domain.tenant import Tenant
from formats.fleet_file import read_fleet_file
from formats.profiles_file import read_profiles
from formats.tenants_file import read_tenants
from services.demo.small_clusters import with_small_clusters, with_storage
from services.demo.warehouse import DemoWarehouse, make_warehouse, storage_folders, tables_of_files


@dataclass(frozen=True, slots=True)
class Stage:
    """What a service of the demo starts with."""

    fleet: Fleet
    warehouse: DemoWarehouse
    profiles: Mapping[str, SensitivityProfile]
    """By model."""
    tenants: tuple[Tenant, ...]
    fleet_file: Path
    tenants_file: Path
    configuration_file: Path
    home: Path

    @property
    def storage(self) -> dict[RegionId, Path]:
        """Where each region stores its tables."""
        return storage_folders(self.warehouse.folder, self.fleet)


def make_stage(home: Path) -> Stage:
    """Writes what the demo adds to its examples into the home, which is there."""
    examples = Path(str(files("services.demo"))) / "fleet_and_tenants"
    tenants_file = examples / "tenants.yaml"
    described = read_fleet_file(examples / "fleet.yaml")
    tables = tables_of_files(described.tables, [region.region for region in described.fleet.regions])
    fleet_file = with_small_clusters(examples / "fleet.yaml", home, tables)
    fleet = read_fleet_file(fleet_file).fleet
    warehouse = make_warehouse(home / "warehouse", fleet, tables)
    return Stage(
        fleet,
        warehouse,
        read_profiles(examples / "profiles.csv"),
        tuple(read_tenants(tenants_file)),
        fleet_file,
        tenants_file,
        with_storage(examples / "scheduler.yaml", home, storage_folders(warehouse.folder, fleet)),
        home,
    )
