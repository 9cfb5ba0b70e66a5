"""What an operator may set: one YAML file (or nothing), scheduler.yaml, handed to every tier.

Intervals that end in `_real_s` are real seconds, whatever the service's clock; all others are the service's.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from cluster_manager.tuning.mechanism import TuningMechanism
from data_placement.machine_assignment.time_limits import DEFAULT_TIME_LIMIT_S, GREATEST_TIME_LIMIT_S
from domain.eviction import EvictionRule
from formats.scheduler_file import (
    NO_ELASTIC,
    NO_TUNING,
    Distribution,
    DistributionSection,
    Estimates,
    EvictionSection,
    PlacementSection,
    Priorities,
    read_scheduler_file,
)
from formats.schema import Name, Schema
from formats.service_samples import read_service_samples
from global_scheduler.credit import CreditSettings
from global_scheduler.scan_settings import ScanSettings
from regional_scheduler.adjustment import ElasticPolicy
from regional_scheduler.rounds import AuctionSettings
from services.data_placement.settings import DataSettings
from services.elastic_choice import elastic_policy
from services.queue_rules import bounds_of_policies, queue_rules
from services.tuning_choice import check_order_of_packing, tuning_mechanism

GREATEST_REAL_S = 86_400.0
"""Of any interval: a day."""


class ScanConfiguration(Schema):
    """When the scan pass runs, and what it weighs (MAST §4.2)."""

    period_real_s: float = Field(default=5.0, gt=0, le=GREATEST_REAL_S)
    """At the latest so often."""
    debounce_real_s: float = Field(default=0.1, ge=0, le=GREATEST_REAL_S)
    """After something happened, so long; more when a pass takes long itself."""
    age_weight_per_s: float = Field(default=CreditSettings().age_weight_per_s, ge=0, le=1e12)
    age_cap_s: float = Field(default=CreditSettings().age_cap_s, ge=0, le=1e12)
    fairness_weight: float = Field(default=CreditSettings().fairness_weight, ge=0, le=1e12)
    usage_window_s: float = Field(default=CreditSettings().usage_window_s, ge=1e-3, le=1e12)

    def credit(self) -> CreditSettings:
        """The credit's constants."""
        return CreditSettings(
            age_weight_per_s=self.age_weight_per_s,
            age_cap_s=self.age_cap_s,
            fairness_weight=self.fairness_weight,
            usage_window_s=self.usage_window_s,
        )


class AuctionConfiguration(Schema):
    """How rounds are cut; a window of 1 is the paper (MAST §4.3)."""

    window: int = Field(default=64, ge=1, le=1024)
    answer_timeout_real_s: float = Field(default=2.0, gt=0, le=GREATEST_REAL_S)
    poll_real_s: float = Field(default=0.5, ge=0.001, le=GREATEST_REAL_S)
    """A region looks at least so often, even if no notification reaches it."""

    def settings(self) -> AuctionSettings:
        return AuctionSettings(window=self.window)


class LeaseConfiguration(Schema):
    """Which process serves what: a lease that is not renewed in time is taken over."""

    duration_real_s: float = Field(default=3.0, ge=0.1, le=GREATEST_REAL_S)


class ClustersConfiguration(Schema):
    """How machines change their clusters, where requests for them were applied (MAST §2: RAS)."""

    decide_every_s: float = Field(default=1800.0, ge=1.0, le=1e9)
    """So often it is decided anew which machines belong where, whether anything has changed or not."""
    on_loss: bool = True
    """Whether it is also decided when a machine is lost: then a spare one takes over."""
    time_limit_real_s: float = Field(default=DEFAULT_TIME_LIMIT_S, ge=0, le=GREATEST_TIME_LIMIT_S)
    """For each decision; 0: it is made greedily."""
    drain_s: float = Field(default=600.0, ge=0, le=1e9)
    """So long what runs on a machine that is to leave its cluster may go on; then it migrates, or is evicted."""
    most_draining: int = Field(default=256, ge=1, le=100_000)
    """So many machines of a region are on their way at a time."""


class Configuration(Schema):
    """Everything, with defaults that suit a small fleet."""

    scan: ScanConfiguration = ScanConfiguration()
    auction: AuctionConfiguration = AuctionConfiguration()
    eviction: EvictionSection = EvictionSection()
    placement: PlacementSection = PlacementSection()
    lease: LeaseConfiguration = LeaseConfiguration()
    clusters: ClustersConfiguration = ClustersConfiguration()
    priorities: Priorities = Field(default_factory=dict)
    """Ordering and levels, for each priority that is not to have the defaults: credit, and no levels."""
    distribution: Distribution = DistributionSection()
    estimates: Estimates = None
    """Whether run times are estimated for policies that need to know them."""
    tuning: Name = NO_TUNING
    """How CPUs and memory are shared out among what runs (Synergy): a policy that tunes, or none."""
    elastic: Name = NO_ELASTIC
    """How many tasks elastic attempts have (Lyra): a policy that resizes, or none."""
    resize_pause_s: float | None = Field(default=None, ge=0, le=1e9)
    """For how long a resize stops a job, for a policy that goes by it; left out: as the policy has it."""
    round_s: float = Field(default=300.0, ge=1e-3, le=1e9)
    """So often, on the clock of the service, what runs is resized and tuned."""

    data: DataSettings = DataSettings()
    """Where tables are stored, how they move, and where they should be."""

    def eviction_rule(self) -> EvictionRule:
        """How far evictions are bounded: as the section says, and else as the policies of the priorities want it."""
        return self.eviction.rule(bounds_of_policies(self.priorities))

    def tuning_mechanism(self, source: str = "scheduler.yaml") -> TuningMechanism | None:
        """What shares out CPUs and memory; None: nothing does. Raises FormatError for one that a service does not follow."""
        return tuning_mechanism(self.tuning, source)

    def elastic_policy(self, source: str = "scheduler.yaml") -> ElasticPolicy | None:
        """What resizes elastic attempts; None: nothing does. Raises FormatError for a policy that resizes nothing, or that has
        no price for it while one is given."""
        return elastic_policy(self.elastic, source, self.resize_pause_s)

    @property
    def counts_run_times(self) -> bool:
        """Whether anything goes by how long workloads ran that have completed."""
        return self.estimates is not None or self.elastic != NO_ELASTIC

    def scan_settings(self, source: str = "scheduler.yaml") -> ScanSettings:
        """How the scan pass decides; raises FormatError for a policy that there is not, or that a service cannot follow."""
        estimated = self.estimates is not None
        check_order_of_packing(self.tuning, self.priorities, estimated=estimated, source=source)
        rules = queue_rules(self.priorities, estimated=estimated, source=source)
        file = self.distribution.samples_file
        samples_gpu_s = () if file is None else read_service_samples(Path(file))
        return ScanSettings(self.scan.credit(), rules, self.distribution.scope, samples_gpu_s)


def load_configuration(path: Path | None) -> Configuration:
    """The file's settings, or the defaults when there is no file; raises FormatError with every problem."""
    if path is None:
        return Configuration()
    configuration = _beside(path, read_scheduler_file(path, Configuration))
    configuration.scan_settings(str(path))
    configuration.tuning_mechanism(str(path))
    configuration.elastic_policy(str(path))
    configuration.data.check_storage(str(path))
    return configuration


def _beside(path: Path, configuration: Configuration) -> Configuration:
    """What names a file names it from where its own file is."""
    file = configuration.distribution.samples_file
    if file is None:
        return configuration
    distribution = configuration.distribution.model_copy(update={"samples_file": str(path.parent.absolute() / file)})
    return configuration.model_copy(update={"distribution": distribution})
