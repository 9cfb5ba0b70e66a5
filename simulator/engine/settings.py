"""How a simulation is run: what things cost, what fails, how often decisions are made. Every part can be switched off.

Settings are documents: `--config` reads them from YAML, `--set costs.container_start_s=0` changes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import yaml
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from cluster_manager.skew.slowdown import SlowdownStep
from domain.service_scope import DistributionScope
from formats.problems import FieldProblem, FormatError, suggestion
from formats.scheduler_file import (
    CompactionSection,
    EvictionSection,
    LevelParameters,
    PlacementSection,
    ReservationsSection,
)
from formats.schema import Schema, parse_schema
from global_scheduler.credit import CreditSettings, FairShare

Seconds = Annotated[float, Field(ge=0, le=1e9)]


class CostSettings(Schema):
    """What it costs to start and to preempt."""

    container_start_s: Seconds = 150.0
    """Containers of all tasks are acquired and set up (MAST §5.5: P50 150 s)."""
    checkpoint_save_s: Seconds = 30.0
    """A preempted attempt saves its work; it does none meanwhile. With the restore about what Lyra §7 reports (63 s)."""
    restore_s: Seconds = 33.0
    """An attempt after the first reads the checkpoint."""
    checkpoint_interval_s: Seconds = 1800.0
    """Work between two periodic checkpoints, where the trace does not say; 0: only preemption saves work.
    What a lost machine costs is the work since the last one."""

    def set_up_s(self, progress: float) -> float:
        """From the moment when its place is free until an attempt works that goes on from there."""
        return self.container_start_s + (self.restore_s if progress > 0 else 0.0)


class AuctionRoundSettings(Schema):
    """Auctions in rounds along the queue, as the service holds them; only for policies that rank by scan passes and start
    the first that fits (`simulator.engine.auction_rounds`)."""

    window: Annotated[int, Field(ge=1, le=1024)] | None = None
    """So many workloads a round puts up at most; None: no rounds, each pass is decided as a whole, one after the other."""
    round_latency_s: Seconds = 0.0
    """From the opening of a round to its decisions, and to the next one."""

    @field_validator("round_latency_s")
    @classmethod
    def _of_rounds(cls, value: float, others: ValidationInfo) -> float:
        if value > 0 and others.data.get("window", 1) is None:
            raise PydanticCustomError("no_rounds", "must be 0 as long as auction_rounds.window is not set")
        return value


class FailureSettings(Schema):
    """Exponential times to failure and repair. 0 in place of a mean time to failure: that never happens.

    The defaults are off. Racks and power domains fail as a whole: all their machines go down and come up together.
    """

    machine_mtbf_s: Seconds = 0.0
    machine_mttr_s: Seconds = 3600.0
    rack_mtbf_s: Seconds = 0.0
    rack_mttr_s: Seconds = 7200.0
    power_domain_mtbf_s: Seconds = 0.0
    power_domain_mttr_s: Seconds = 14400.0
    racks_per_power_domain: Annotated[int, Field(ge=1, le=100_000)] = 8


class SlowdownSetting(Schema):
    """A step of the table by which spread work is slower."""

    skew: Annotated[float, Field(ge=0, le=1)]
    slowdown: Annotated[float, Field(ge=1, le=1e6)]


class PlacementSettings(PlacementSection):
    """Placement by skew (Tiresias §3.3). Without skews in the trace, drawn or declared, all of it changes nothing."""

    draw_skews: bool = False
    """Rows without a skew get that of one of the ten models of Tiresias's Table 6: the one that their `model` names, else
    one chosen by its checksum, or by that of the row's id."""
    spread_slowdown: list[SlowdownSetting] = Field(default_factory=list)
    """From each of these skews on, work on more machines than it needs takes so many times as long; empty: it never does."""

    def steps(self) -> tuple[SlowdownStep, ...]:
        """The table in ascending order of skew."""
        return tuple(sorted(SlowdownStep(step.skew, step.slowdown) for step in self.spread_slowdown))


class EstimateSettings(Schema):
    """How well run times are known to policies that go by them (Lyra §7.4, Table 9)."""

    wrong_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the workloads, how many are estimated wrongly; drawn from the seed."""
    error: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """By how much at most, as a share of the run time, up or down; evenly distributed."""


class ElasticSettings(Schema):
    """What flexible tasks of elastic workloads bring (Lyra §7.2)."""

    loss: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of what a flexible task would bring if speed were in proportion to the tasks; policies know of it."""


class LoanedSettings(Schema):
    """What workloads make of the GPUs of machines on loan, where these are of another model (Lyra §2.1, §7.1)."""

    gpus_per_gpu: Annotated[int, Field(ge=1, le=64)] = 1
    """A fungible workload takes so many loaned GPUs for each that it asks for: more tasks, of the same global batch."""
    heterogeneous_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the workloads of more than one task, how many may run on both models at once; chosen by their names."""
    heterogeneous_speed: Annotated[float, Field(gt=0, le=1)] = 0.7
    """How fast they are then (Lyra: at most 70 % of the ideal)."""
    reclaim_deadline_s: Seconds = 300.0
    """So long after it was asked back a machine is inference's again: what saves its work for longer loses it."""


_GROUPS: Mapping[str, type[Schema]] = MappingProxyType(
    {
        "auction_rounds": AuctionRoundSettings,
        "compaction": CompactionSection,
        "costs": CostSettings,
        "failures": FailureSettings,
        "eviction": EvictionSection,
        "elastic": ElasticSettings,
        "estimates": EstimateSettings,
        "levels": LevelParameters,
        "loaned": LoanedSettings,
        "placement": PlacementSettings,
        "reservations": ReservationsSection,
    }
)
_WHOLE_NUMBERS = frozenset(
    {
        "most_gpus",
        "gangs_at_once",
        "moves_per_workload_and_hour",
        "at_most",
        "least_gpus",
        "racks_per_power_domain",
        "evictions_per_workload_and_hour",
        "check_every_events",
        "gpus_per_gpu",
        "window",
    }
)


class SimulationSettings(Schema):
    """All of it."""

    costs: CostSettings = CostSettings()
    elastic: ElasticSettings = ElasticSettings()
    estimates: EstimateSettings = EstimateSettings()
    loaned: LoanedSettings = LoanedSettings()
    failures: FailureSettings = FailureSettings()
    eviction: EvictionSection = EvictionSection()
    """What it does not say is as the policy has it."""
    placement: PlacementSettings = PlacementSettings()
    compaction: CompactionSection = CompactionSection()
    """Off: waiting gangs find the machines that are idle, or wait."""
    reservations: ReservationsSection = ReservationsSection()
    """Off: nothing is kept for gangs that wait."""
    levels: LevelParameters = LevelParameters()
    """Of those policies whose levels have such parameters."""
    ordering: str | None = None
    """In which order, for policies that take one; None: in their own."""
    distribution: Annotated[DistributionScope, Field(strict=False)] = DistributionScope.GLOBAL
    """Whose completed workloads count for the Gittins index of a workload."""
    scan_period_s: Seconds = 60.0
    """Scan passes begin at multiples of this, when something has changed (only for policies that scan); 0: at once."""
    round_s: Annotated[float, Field(gt=0, le=1e9)] = 300.0
    """What runs is resized and retuned at multiples of this, when something has happened (only for policies that do either)."""
    auction_rounds: AuctionRoundSettings = AuctionRoundSettings()
    """Off: a pass is decided at one instant."""
    auction_latency_s: Seconds = 0.0
    """From a scan pass to the decisions that are made on it, where these are not made in rounds."""
    auction_period_s: Seconds = 0.0
    """Policies that make no scan passes decide at multiples of this, when something has changed; 0: at once."""
    usage_window_s: Annotated[float, Field(gt=0, le=1e9)] = 86_400.0
    """Over which a tenant's use is averaged for its credit."""
    fair_share: Annotated[FairShare, Field(strict=False)] = CreditSettings().fair_share
    """What that use is compared with: that of all tenants (as published), or that of the average one."""
    negative_cache: bool = True
    """Whether refusals are remembered (MAST §4.3). False: every question is planned anew. What is decided is the same
    either way, for the memory is exact (docs/decisions/007); what it takes to decide is not."""
    negative_cache_outlives_scans: bool = True
    """False: what was refused is forgotten with each pass along the queue, as MAST's own cache is."""
    trace_regions_bind: bool = True
    """Whether a workload may run only in the region that its trace names. False: that is merely where it came from,
    and the policy `own_region` alone keeps it there."""
    check_every_events: Annotated[int, Field(ge=0, le=10**9)] = 25_000
    """So often the invariants of the run are computed anew and compared; 0: never. One that is broken is an event of
    the log and a violated law."""
    stop_after_s: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    """The run is broken off so long after its beginning; 0: it runs to the end."""

    @field_validator("auction_latency_s")
    @classmethod
    def _of_no_rounds(cls, value: float, others: ValidationInfo) -> float:
        rounds = others.data.get("auction_rounds")
        if value > 0 and isinstance(rounds, AuctionRoundSettings) and rounds.window is not None:
            raise PydanticCustomError(
                "rounds",
                "must be 0 where auction_rounds.window is set: it is auction_rounds.round_latency_s that counts",
            )
        return value


def settings_from(document: object, changes: Sequence[str], source: str) -> SimulationSettings:
    """Settings from a YAML document (None: the defaults) with `key=value` changes, keys with dots.

    Raises FormatError that names the field.
    """
    merged: dict[str, object] = {}
    if document is not None:
        if not isinstance(document, dict):
            raise FormatError(source, [FieldProblem("", "must be a mapping of settings")])
        merged = {key: dict(value) if isinstance(value, dict) else value for key, value in document.items()}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise FormatError("--set", [FieldProblem(change, "must be key=value, such as costs.restore_s=0")])
        _put(merged, key.strip(), _number_or_text(text.strip()))
    return parse_schema(SimulationSettings, _with_floats(merged), source)


def _put(merged: dict[str, object], key: str, value: object) -> None:
    *folders, name = key.split(".")
    place: dict[str, object] = merged
    for folder in folders:
        inner = place.setdefault(folder, {})
        if not isinstance(inner, dict):
            raise FormatError("--set", [FieldProblem(key, f"{folder} is a value, it has no fields")])
        place = inner
    if not folders and name in _GROUPS:
        hint = suggestion(name, [f"{name}.{field}" for field in _fields_of(name)], "field")
        raise FormatError("--set", [FieldProblem(key, f"is a group of settings; {hint}")])
    place[name] = value


def _fields_of(group: str) -> tuple[str, ...]:
    return tuple(_GROUPS[group].model_fields)


def _number_or_text(text: str) -> object:
    """What YAML makes of it; and a number where YAML sees only text: 2e6."""
    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _with_floats(document: Mapping[str, object]) -> dict[str, object]:
    """Whole numbers may stand where fractions are possible, and scan_period_s: 60 is as good as 60.0."""
    floats: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            floats[key] = _with_floats(value)
        elif isinstance(value, list):
            floats[key] = [
                float(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value
            ]
        elif isinstance(value, int) and not isinstance(value, bool) and key not in _WHOLE_NUMBERS:
            floats[key] = float(value)
        else:
            floats[key] = value
    return floats
