"""scheduler.yaml: how the service decides, and how its tiers keep time. Each section of the file is one model.

What the sections mean together, and which names of policies there are, is checked where they are put to use.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from domain.compaction import CompactionRule
from domain.eviction import (
    DEFAULT_RESTART_COST_S,
    DEFAULT_RULE,
    LEAST_RESTART_COST_S,
    MOST_RESTART_COST_S,
    EvictionRule,
    VictimChoice,
)
from domain.reservation import ReservationLimits, ReservationRule
from domain.service_scope import DistributionScope
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from formats.problems import FieldProblem, FormatError
from formats.schema import Name, Schema, SchemaModel, parse_schema, whole_number_keys
from formats.text_stream import read_text
from formats.yaml_document import load_documents

DEFAULT_ORDERING = "credit"
NO_LEVELS = "none"
NO_TUNING = "none"
NO_ELASTIC = "none"
AUTO = "auto"
LEARNT: Literal["learnt"] = "learnt"

Positive = Annotated[float, Field(gt=0, le=1e15)]


def _limit_or_how(value: object) -> object:
    if value == AUTO or value is None:
        return None
    if value == LEARNT:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise PydanticCustomError("packlimit", "must be auto, learnt, or a number from 0 to 1")
    return value


PackLimitSetting = Annotated[float | Literal["learnt"] | None, BeforeValidator(_limit_or_how)]


class LevelParameters(Schema):
    """Parameters of level rules; what is left out is as the policy has it."""

    thresholds_gpu_s: list[Positive] | None = None
    slice_s: Positive | None = None
    first_bucket_gpu_s: Positive | None = None
    bucket_factor: Annotated[float, Field(gt=1, le=1e6)] | None = None
    promote_knob: Positive | None = None
    """null, if it is there: switched off."""
    starve_limit_s: Annotated[float, Field(ge=0, le=1e15)] | None = None
    """null, if it is there: switched off."""


class LevelsSection(LevelParameters):
    """Which level rule, with which parameters."""

    rule: Name | None = None
    """`none`: all are at level 0."""


class PrioritySection(Schema):
    """How the workloads of one priority are ordered, and at which levels they are."""

    ordering: Name = DEFAULT_ORDERING
    """A policy that `topmast policies` lists, with its levels; or an ordering alone."""
    levels: LevelsSection = LevelsSection()


class EvictionSection(Schema):
    """How far evictions that make room for others are bounded. What is left out is as the policies want it, and most of
    them bound nothing but the standing."""

    minimum_run_time_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """An attempt is not evicted before it has run so long; one that has not started, so long after its dispatch."""
    evictions_per_workload_and_hour: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """A workload is evicted at most so often within any hour; null: as often as others need its place."""
    spares_guaranteed: bool = False
    """True: a workload over its tenant's quota never evicts an attempt that was within quota when it was dispatched."""
    victims: Annotated[VictimChoice, Field(strict=False)] = VictimChoice.LEAST_WORK_DESTROYED
    """Which attempts of one standing leave: those of which the least work is lost, or as MAST has published it."""
    restart_cost_s: Annotated[float, Field(ge=LEAST_RESTART_COST_S, le=MOST_RESTART_COST_S)] = DEFAULT_RESTART_COST_S
    """What an eviction costs besides the work since the last checkpoint: for so long all GPUs of the attempt stand idle."""

    def rule(self, otherwise: EvictionRule = DEFAULT_RULE) -> EvictionRule:
        """As the core wants it; what the section does not set is as in `otherwise`."""
        return dataclasses.replace(otherwise, **{name: getattr(self, name) for name in self.model_fields_set})


class CompactionSection(Schema):
    """Whether small attempts migrate off nearly empty machines so that waiting gangs find whole ones."""

    enabled: bool = False
    most_gpus: Annotated[int, Field(ge=1, le=64)] = 4
    """An attempt of more is never moved."""
    gangs_at_once: Annotated[int, Field(ge=1, le=1_000)] = 3
    """For so many gangs room is made in a region at a time."""
    moves_per_workload_and_hour: Annotated[int, Field(ge=1, le=1_000)] = 1
    checkpoint_within_s: Annotated[float, Field(ge=0, le=1e9)] = 1800.0
    """What has no checkpoint that is younger is not moved."""
    restart_s: Annotated[float, Field(ge=0, le=1e9)] = 213.0
    """What a move costs an attempt: weighed against what it starts."""
    longest_wait_s: Annotated[float, Field(ge=0, le=1e9)] = 3600.0
    """A gang is taken to wait on for as long as it has waited, but for at most so long."""
    between_regions: bool = False
    """Whether attempts go on in another region, too, where the GPUs that a gang lacks in one are idle."""

    def rule(self) -> CompactionRule | None:
        """As the core wants it; None: nothing is moved."""
        return CompactionRule(**self.model_dump(exclude={"enabled"})) if self.enabled else None


class ReservationLimitsSection(Schema):
    """Of the gangs of one priority; what is left out is as for the others."""

    after_s: Annotated[float, Field(ge=0, le=1e9)] | None = None
    at_most: Annotated[int, Field(ge=0, le=1_000)] | None = None


ReservationsOfPriorities = Annotated[
    dict[Annotated[int, Field(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)], ReservationLimitsSection],
    BeforeValidator(whole_number_keys),
]


class ReservationsSection(Schema):
    """Whether machines are kept for large gangs that have waited for too long (EASY backfilling)."""

    enabled: bool = False
    after_s: Annotated[float, Field(ge=0, le=1e9)] = 3600.0
    """A gang that has been queued for so long gets a reservation."""
    at_most: Annotated[int, Field(ge=0, le=1_000)] = 2
    """So many gangs of a priority have one in a region at a time; 0: none."""
    priorities: ReservationsOfPriorities = Field(default_factory=dict)
    """`after_s` and `at_most` of single priorities."""
    least_gpus: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """A workload of fewer gets none."""
    tolerance_s: Annotated[float, Field(ge=0, le=1e9)] = 1800.0
    """A reservation that is not met so long after its time is made anew."""
    assumed_run_time_s: Annotated[float, Field(ge=0, le=1e9)] = 86_400.0
    """What runs without an estimate is taken to run for so long, and what has outlived its estimate for so long from now on."""
    start_up_s: Annotated[float, Field(ge=0, le=1e9)] = 213.0
    """From a dispatch to the work: added to what a workload says that it runs."""
    look_every_s: Annotated[float, Field(gt=0, le=1e9)] = 300.0
    """So often, on the clock of the service or the run, a region looks at its reservations."""

    def rule(self) -> ReservationRule | None:
        """As the core wants it; None: nothing is kept for anybody."""
        if not self.enabled:
            return None
        limits = {
            priority: ReservationLimits(
                self.after_s if one.after_s is None else one.after_s,
                self.at_most if one.at_most is None else one.at_most,
            )
            for priority, one in sorted(self.priorities.items())
        }
        rest = self.model_dump(exclude={"enabled", "after_s", "at_most", "priorities"})
        return ReservationRule(ReservationLimits(self.after_s, self.at_most), limits, **rest)


class PlacementSection(Schema):
    """Which jobs are consolidated by the skew of their models (Tiresias §3.3)."""

    packlimit: PackLimitSetting = None
    """Jobs of a greater skew are. `learnt`: from the history of placements and iteration times. None, `auto` in the file:
    learnt in a service; in a simulation that of the snapshot where it begins, if there is one, else the paper's."""
    wait_for_consolidation: bool = False
    """True: a job of a greater skew waits until it can be on as few machines as it needs."""
    trial_s: Positive | None = None
    """So long an attempt runs that was placed when nothing was known of its models, before it is moved to fewer machines
    if they turn out to need that. None: it stays where it is, and its next start follows what is known."""

    @property
    def fixed_packlimit(self) -> float | None:
        """The limit where it is a number; None: it is learnt, or was."""
        return None if self.packlimit == LEARNT else self.packlimit


class DistributionSection(Schema):
    """By which completed workloads the Gittins index goes (Tiresias §3.2.2)."""

    scope: Annotated[DistributionScope, Field(strict=False)] = DistributionScope.GLOBAL
    samples_file: Annotated[str, Field(min_length=1)] | None = None
    """Samples of service to begin with, as `formats.service_samples` reads them; from the folder of this file on."""


class EstimatesSection(Schema):
    """Estimates of run times, for policies that only an oracle could serve otherwise."""

    assumed_run_s: Positive = 3600.0
    """For a workload that declares nothing, of a tenant of which none has completed yet."""


def _scope_alone(value: object) -> object:
    """`tenant` is `{scope: tenant}`."""
    return {"scope": value} if isinstance(value, str) else value


def _yes_or_no(value: object) -> object:
    """`true` are estimates with the defaults, `false` are none."""
    if isinstance(value, bool):
        return {} if value else None
    return value


Estimates = Annotated[EstimatesSection | None, BeforeValidator(_yes_or_no)]
Distribution = Annotated[DistributionSection, BeforeValidator(_scope_alone)]
Priorities = Annotated[
    dict[Annotated[int, Field(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)], PrioritySection],
    BeforeValidator(whole_number_keys),
]


def read_scheduler_file(path: Path, model: type[SchemaModel]) -> SchemaModel:
    """The file as that model, which has the sections as fields; an empty file is all defaults.

    Raises FormatError with every problem.
    """
    return parse_scheduler_file(read_text(path), model, str(path))


def parse_scheduler_file(text: str, model: type[SchemaModel], source: str = "scheduler.yaml") -> SchemaModel:
    """The YAML text as that model; raises FormatError with every problem."""
    documents = load_documents(text, source, whole_number_keys=True)
    if len(documents) > 1:
        described = f"has {len(documents)} documents separated by '---'; put all sections into one"
        raise FormatError(source, [FieldProblem("", described)])
    return parse_schema(model, documents[0] if documents and documents[0] is not None else {}, source)
