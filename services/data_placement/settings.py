"""The section `data` of scheduler.yaml as a whole: beside how tables move, when and how plans of their places are made."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from data_placement.copy_choices import CorrelatedFailure, SpareShare
from data_placement.plan_choices import MOST_SECONDS, PRESET_NAMES, PlanChoices
from data_placement.solvers.registry import SOLVERS
from formats.data_section import DataSection
from formats.problems import FieldProblem, FormatError
from formats.schema import Name, Schema
from services.storage.protocols import protocol_problem

_is_time = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]", re.ASCII).fullmatch
_DAY_S = 86_400.0


def _time_of_day(value: object) -> object:
    """YAML reads 02:30 without quotes as a number of minutes."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 24 * 60:
        value = f"{value // 60:02}:{value % 60:02}"
    if value is not None and not (isinstance(value, str) and _is_time(value)):
        raise PydanticCustomError("time_of_day", "must be a time of the day (UTC) such as 02:30, or null for never")
    return value


def _one_of(names: tuple[str, ...]) -> BeforeValidator:
    def known(value: object) -> object:
        if value not in names:
            raise PydanticCustomError("choice", "must be one of {names}", {"names": ", ".join(names)})
        return value

    return BeforeValidator(known)


class CorrelatedFailureSection(Schema):
    """How likely the other region fails when the first does; also the other way round, where that is not said."""

    region: Name
    other: Name
    probability: Annotated[float, Field(ge=0, le=1)]


class DataSettings(DataSection):
    """Where tables are stored and how they move, and where they should be (MAST §3)."""

    solver: Annotated[str, _one_of(tuple(SOLVERS))] = PlanChoices().solver
    preset: Annotated[str, _one_of(PRESET_NAMES)] = PlanChoices().preset
    time_limit_s: Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None = None
    keep_to_links: bool = False
    home_training_share: Annotated[float, Field(ge=0, le=1)] | None = None
    replicas: bool = True
    disaster_copies: bool = True
    spare_hardware: bool = True
    hot_storage_share: Annotated[float, Field(ge=0, le=1)] = PlanChoices().hot_storage_share
    partition_copies: bool = False
    correlated_failures: list[CorrelatedFailureSection] = Field(default_factory=list)
    spare_gpu_shares: dict[Name, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """By region."""
    bound: bool = False
    daily_at: Annotated[str | None, BeforeValidator(_time_of_day)] = None
    """Each day at this time (UTC, on the clock of the service) a plan is made; null: only when somebody asks for one."""
    apply: Literal["review", "automatic"] = "review"
    """`review`: a daily plan waits for `topmast data apply`; `automatic`: its moves begin at once."""
    history_days: Annotated[int, Field(ge=1, le=3650)] = 7
    """Demand is the mean of so many days."""

    def check_storage(self, source: str = "scheduler.yaml") -> None:
        """Raises FormatError for storage that no mover could reach from here: fsspec, or what is installed beside it, lacks it."""
        problems: list[FieldProblem] = []
        for region, section in self.regions.items():
            described = protocol_problem(section.storage)
            if described is not None:
                problems.append(FieldProblem(f"data.regions.{region}.storage", described))
        if problems:
            raise FormatError(source, problems)

    def choices(self) -> PlanChoices:
        """How a plan is made where nobody chooses; it copies no more to new homes than may be copied in a day."""
        return PlanChoices(
            solver=self.solver,
            preset=self.preset,
            time_limit_s=self.time_limit_s,
            quota_bytes=self.bytes_per_day,
            keep_to_links=self.keep_to_links,
            home_training_share=self.home_training_share,
            replicas=self.replicas,
            disaster_copies=self.disaster_copies,
            spare_hardware=self.spare_hardware,
            hot_storage_share=self.hot_storage_share,
            partition_copies=self.partition_copies,
            correlated_failures=tuple(
                [CorrelatedFailure(each.region, each.other, each.probability) for each in self.correlated_failures]
            ),
            spare_gpu_shares=tuple([SpareShare(region, share) for region, share in self.spare_gpu_shares.items()]),
            bound=self.bound,
        )

    @model_validator(mode="after")
    def _copies_that_make_sense(self) -> DataSettings:
        for place, each in enumerate(self.correlated_failures):
            if each.region == each.other:
                raise PydanticCustomError(
                    "correlated_failures",
                    "correlated_failures[{place}].other is the same region, {region}; name two",
                    {"place": place, "region": each.region},
                )
            if any((each.region, each.other) == (one.region, one.other) for one in self.correlated_failures[:place]):
                raise PydanticCustomError(
                    "correlated_failures",
                    "correlated_failures[{place}] is about {region} and {other} again; say it once",
                    {"place": place, "region": each.region, "other": each.other},
                )
        return self

    @model_validator(mode="after")
    def _what_is_applied_moves(self) -> DataSettings:
        if self.apply == "automatic" and not self.moves:
            raise PydanticCustomError(
                "apply",
                "apply: automatic would move nothing; name the storage of regions (data.regions), or set emulated: true,"
                " or apply: review",
            )
        return self

    def next_plan_s(self, after_s: float) -> float | None:
        """When the next daily plan is due, strictly after that time; None: never."""
        if self.daily_at is None:
            return None
        hours, _, minutes = self.daily_at.partition(":")
        offset_s = int(hours) * 3600.0 + int(minutes) * 60.0
        day_begin_s = after_s // _DAY_S * _DAY_S
        due_s = day_begin_s + offset_s
        return due_s if due_s > after_s else due_s + _DAY_S
