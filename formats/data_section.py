"""The section `data` of scheduler.yaml: where regions store tables, and how tables move between them."""

from __future__ import annotations

import posixpath
from itertools import combinations
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from formats.schema import Name, Schema

_OTHER_NAMES = MappingProxyType(
    {"s3a": "s3", "gcs": "gs", "local": "file", "az": "abfs", "abfss": "abfs", "ssh": "sftp"}
)
"""Of protocols with several: what one of them reaches is what the other reaches."""
STORAGE_EXAMPLE = "file:///srv/tables or s3://bucket/tables"


def storage_url(value: str) -> str:
    """Raises unless it is a URL with a protocol and a path."""
    protocol, found, path = value.partition("://")
    if not found or not protocol or not path.strip("/"):
        raise PydanticCustomError("storage", "must be a URL such as {example}", {"example": STORAGE_EXAMPLE})
    return value


class DataRegionSection(Schema):
    """Of one region."""

    storage: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(storage_url)]
    """A folder for tables, as fsspec names it: each table is a folder in it, each partition a file in that."""


class DataSection(Schema):
    """Where tables are stored, and how they move. With neither `regions` nor `emulated` they stay where they are."""

    regions: dict[Name, DataRegionSection] = Field(default_factory=dict)
    emulated: bool = False
    """True: tables are no files, and copies take as long as their bytes take over the links. For emulated services."""
    bytes_per_day: Annotated[float, Field(gt=0, le=1e21)] | None = None
    """So much may be copied in a day (UTC); null: as much as links carry."""
    background_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Of each link, for copies without a deadline, however many there are with one."""
    on_demand: bool = True
    """Whether tables are copied for workloads that wait for them."""

    @property
    def moves(self) -> bool:
        """Whether tables move at all."""
        return self.emulated or bool(self.regions)

    @model_validator(mode="after")
    def _files_or_not(self) -> DataSection:
        if self.emulated and self.regions:
            raise PydanticCustomError("emulated", "cannot have emulated: true and regions; leave one of them out")
        return self

    @model_validator(mode="after")
    def _a_folder_for_each_region(self) -> DataSection:
        """Regions that share a folder share each file in it: deleting the old copy would delete the new one."""
        folders = [(name, _folder_of(region.storage)) for name, region in sorted(self.regions.items())]
        for (first, one), (second, other) in combinations(folders, 2):
            if one.startswith(other) or other.startswith(one):
                raise PydanticCustomError(
                    "storage",
                    "regions {first} and {second} store tables in one folder, or one in that of the other;"
                    " give each region a folder of its own",
                    {"first": first, "second": second},
                )
        return self


def _folder_of(url: str) -> str:
    """The URL in one way of writing, with / at its end."""
    protocol, _, path = url.partition("://")
    protocol = _OTHER_NAMES.get(protocol, protocol)
    return f"{protocol}://{posixpath.normpath(path).lstrip('/')}/"
