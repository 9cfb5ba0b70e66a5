"""What an operator may set: one YAML file (or nothing), scheduler.yaml, handed to every tier.

Intervals that end in `_real_s` are real seconds, whatever the service's clock; all others are the service's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from cluster_manager.tuning.mechanism import TuningMechanism
from data_placement.machine_assignment.time_limits import DEFAULT_TIME_LIMIT_S, GREATEST_TIME_LIMIT_S
from domain.eviction import EvictionRule
from formats.problems import FieldProblem, FormatError
from formats.scheduler_file import (
    NO_ELASTIC,
    NO_TUNING,
    CompactionSection,
    Distribution,
    DistributionSection,
    Estimates,
    EvictionSection,
    PlacementSection,
    Priorities,
    ReservationsSection,
    read_scheduler_file,
)
from formats.schema import Name, Schema
from formats.service_samples import read_service_samples
from global_scheduler.credit import CreditSettings, FairShare
from global_scheduler.scan_settings import ScanSettings
from regional_scheduler.adjustment import ElasticPolicy
from regional_scheduler.rounds import AuctionSettings
from services.data_placement.settings import DataSettings
from services.elastic_choice import elastic_policy
from services.execution.environment_preparation import BUILD_TIMEOUT_S
from services.execution.memory_watch import LOOK_EVERY_S, RESERVE_BYTES, MemorySettings
from services.execution.task_user import NEVER_GIVEN, TaskSettings
from services.global_scheduler.disk_room import DiskSettings
from services.log_settings import LogSettings
from services.metrics.settings import MetricsSettings
from services.notifications.settings import NotificationSettings
from services.queue_rules import bounds_of_policies, queue_rules
from services.retention.age import BadAge, check_age, check_workloads_age, least_age_s
from services.retention.archive import Archive, ArchiveUnusable
from services.security.settings import SecuritySettings
from services.security.transport_settings import TransportSettings
from services.storage.settings import StorageSettings
from services.tiers.lease_times import SILENCE_REAL_S
from services.tiers.request_settings import RequestSettings
from services.tracing.settings import TracingSettings
from services.tuning_choice import check_order_of_packing, tuning_mechanism

GREATEST_REAL_S = 86_400.0
"""Of any interval: a day."""

_GIB = 2**30


class ScanConfiguration(Schema):
    """When the scan pass runs, and what it weighs (MAST §4.2)."""

    period_real_s: float = Field(default=5.0, gt=0, le=GREATEST_REAL_S)
    """At the latest so often."""
    debounce_real_s: float = Field(default=0.1, ge=0, le=GREATEST_REAL_S)
    """After something happened, so long; more when a pass takes long itself."""
    age_weight_per_s: float = Field(default=CreditSettings().age_weight_per_s, ge=0, le=1e12)
    age_cap_s: float = Field(default=CreditSettings().age_cap_s, ge=0, le=1e12)
    fairness_weight: float = Field(default=CreditSettings().fairness_weight, ge=0, le=1e12)
    fair_share: Annotated[FairShare, Field(strict=False)] = CreditSettings().fair_share
    """What a tenant's use is compared with: that of all tenants (as published), or that of the average one."""
    usage_window_s: float = Field(default=CreditSettings().usage_window_s, ge=1e-3, le=1e12)

    def credit(self) -> CreditSettings:
        """The credit's constants."""
        return CreditSettings(
            age_weight_per_s=self.age_weight_per_s,
            age_cap_s=self.age_cap_s,
            fairness_weight=self.fairness_weight,
            fair_share=self.fair_share,
            usage_window_s=self.usage_window_s,
        )


class AuctionConfiguration(Schema):
    """How rounds are cut; a window of 1 is the paper (MAST §4.3)."""

    window: int = Field(default=256, ge=1, le=1024)
    answer_timeout_real_s: float = Field(default=2.0, gt=0, le=GREATEST_REAL_S)
    """So long regions are waited for that have not answered a round, and so long at most a round is continued after that."""
    poll_real_s: float = Field(default=1.0, ge=0.001, le=GREATEST_REAL_S)
    """A region looks at least so often, even if no notification reaches it."""

    def settings(self) -> AuctionSettings:
        return AuctionSettings(window=self.window)


class LeaseConfiguration(Schema):
    """Which process serves what: a lease that is not renewed in time is taken over."""

    duration_real_s: float = Field(default=3.0, ge=0.1, le=GREATEST_REAL_S)
    silence_real_s: float = Field(default=SILENCE_REAL_S, ge=0.1, le=GREATEST_REAL_S)
    """A process whose event loop makes no turn for so long gives its lease up; one that is only busy keeps it."""
    tasks_stop_after_real_s: float = Field(default=2400.0, ge=0.1, le=GREATEST_REAL_S)
    """So long after the lease of its cluster manager has ended a task has stopped itself: longer than outages of the database."""
    lost_grace_real_s: float = Field(default=60.0, ge=0.1, le=GREATEST_REAL_S)
    """So long after that the cluster, or the region, is declared lost: what ran there runs elsewhere."""

    @model_validator(mode="after")
    def _check(self) -> LeaseConfiguration:
        # A lease that is given back ends at once, and what was allowed under it was allowed for as long as it was to last.
        if self.lost_grace_real_s < self.duration_real_s:
            raise ValueError(
                f"lost_grace_real_s is {self.lost_grace_real_s:g}; it must be at least duration_real_s"
                f" ({self.duration_real_s:g}), or tasks could still run where they are taken for lost"
            )
        return self


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


class RetentionConfiguration(Schema):
    """For how long what is over stays in the database; by default for ever."""

    older_than_s: float | None = None
    """What has been over for so long is taken out, by itself; left out: nothing is."""
    workloads_older_than_s: float | None = None
    """Workloads themselves, with their outcome, when they have been over for so long; left out: they stay for ever."""
    archive: Annotated[str, Field(min_length=1)] | None = None
    """The folder to which it is written before, as Parquet; left out: it is deleted for good. Beside this file."""
    every_real_s: float = Field(default=3600.0, ge=1.0, le=GREATEST_REAL_S)
    """So often it is looked whether there is anything to take out."""


class TaskMemoryConfiguration(Schema):
    """What happens to tasks that use more memory than they have, and on a machine that runs out of it."""

    enforced: bool = True
    """Whether a task ends that uses more than its workload says; where that leaves memory open it has no limit."""
    look_every_real_s: float = Field(default=LOOK_EVERY_S, ge=0.1, le=GREATEST_REAL_S)
    machine_reserve_gib: float = Field(default=RESERVE_BYTES / _GIB, ge=0, le=1e6)
    """When a machine has less left, one of its tasks ends; 0: none does, until the kernel ends one."""

    def settings(self) -> MemorySettings:
        return MemorySettings(
            enforced=self.enforced,
            look_every_s=self.look_every_real_s,
            reserve_bytes=round(self.machine_reserve_gib * _GIB),
        )


class EnvironmentsConfiguration(Schema):
    """How environments of tasks (requirements, conda, images) are made on the machines."""

    build_timeout_real_s: float = Field(default=BUILD_TIMEOUT_S, ge=1.0, le=GREATEST_REAL_S)
    """An attempt fails whose environment is not ready then on each of its machines."""


class TasksConfiguration(Schema):
    """As whom the processes of tasks run, and what they get of the service's environment."""

    run_as: Name | None = None
    """A user of the machines; left out: the user as whom the service, or its Ray, runs."""
    allow_root: bool | None = None
    """Whether tasks may run as root; left out: in a service that was started with `topmast up`, and not under `topmast serve`."""
    variables: list[Name] = Field(default_factory=list)
    """Names of variables that tasks get besides the usual ones."""

    @field_validator("variables")
    @classmethod
    def _no_secrets_of_ours(cls, names: list[str]) -> list[str]:
        for name in names:
            if name in NEVER_GIVEN:
                raise ValueError(f"{name} is the service's own: no task may have it")
        return names

    def settings(self) -> TaskSettings:
        return TaskSettings(self.run_as or "", self.allow_root is not False, tuple(self.variables))


class Configuration(Schema):
    """Everything, with defaults that suit a small fleet."""

    scan: ScanConfiguration = ScanConfiguration()
    auction: AuctionConfiguration = AuctionConfiguration()
    eviction: EvictionSection = EvictionSection()
    placement: PlacementSection = PlacementSection()
    compaction: CompactionSection = CompactionSection()
    """Whether small attempts move to make room for gangs that wait."""
    reservations: ReservationsSection = ReservationsSection()
    """Whether machines are kept for large gangs that have waited for too long."""
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

    retention: RetentionConfiguration = RetentionConfiguration()
    """What leaves the database when it is old."""

    task_memory: TaskMemoryConfiguration = TaskMemoryConfiguration()
    """What keeps tasks to their memory, and leaves machines some."""

    environments: EnvironmentsConfiguration = EnvironmentsConfiguration()
    """How environments of tasks are made."""
    tasks: TasksConfiguration = TasksConfiguration()
    """As whom tasks run, and with what of the environment."""

    security: SecuritySettings = SecuritySettings()
    """Who may call."""

    tls: TransportSettings = TransportSettings()
    """How tiers and clients talk: in plain text, unless certificates are named."""

    requests: RequestSettings = RequestSettings()
    """What each tier takes on at a time."""

    disk: DiskSettings = DiskSettings()
    """What is kept of the disk for what runs already."""

    storage: StorageSettings = StorageSettings()
    """Where the service keeps files that several tiers need."""

    notifications: NotificationSettings = NotificationSettings()
    """How users' URLs are told of what happens to their workloads."""

    metrics: MetricsSettings = MetricsSettings()
    """Where the service's metrics can be read."""

    tracing: TracingSettings = TracingSettings()
    """Whether and where the way of workloads through the tiers is told."""

    logs: LogSettings = LogSettings()
    """How large the service's log files grow."""

    data: DataSettings = DataSettings()
    """Where tables are stored, how they move, and where they should be."""

    def with_metrics_at(self, host: str | None, port: int | None) -> Configuration:
        """The same with metrics served there; None: as it says."""
        named = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        return self.model_copy(update={"metrics": self.metrics.model_copy(update=named)})

    def with_tier_token(self, file: Path | None) -> Configuration:
        """The same with the token of tiers in this file; None: as it says."""
        if file is None:
            return self
        named = {"tier_token_file": str(file.expanduser().absolute())}
        return self.model_copy(update={"security": self.security.model_copy(update=named)})

    def without_authentication(self) -> Configuration:
        """The same where nobody is asked who is calling."""
        return self.model_copy(update={"security": self.security.model_copy(update={"authentication": False})})

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

    def check_retention(self, source: str = "scheduler.yaml") -> None:
        """Raises FormatError when what is younger than decisions need would be taken out, or could not be archived."""
        problems = []
        if self.retention.older_than_s is not None:
            try:
                check_age(self.retention.older_than_s, least_age_s(self.scan.usage_window_s))
            except BadAge as bad:
                problems.append(FieldProblem("retention.older_than_s", str(bad)))
        if self.retention.workloads_older_than_s is not None:
            try:
                check_workloads_age(self.retention.workloads_older_than_s, self.retention.older_than_s)
            except BadAge as bad:
                problems.append(FieldProblem("retention.workloads_older_than_s", str(bad)))
        if self.retention.archive is not None:
            if self.retention.older_than_s is None:
                problems.append(FieldProblem("retention.archive", "has nothing to hold: say older_than_s as well"))
            else:
                try:
                    Archive(Path(self.retention.archive)).require_writable()
                except ArchiveUnusable as unusable:
                    problems.append(FieldProblem("retention.archive", str(unusable)))
        if problems:
            raise FormatError(source, problems)

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
    configuration.storage.check(str(path))
    configuration.notifications.check(str(path))
    configuration.tracing.check(str(path))
    configuration.tls.check(str(path))
    configuration.check_retention(str(path))
    return configuration


def _beside(path: Path, configuration: Configuration) -> Configuration:
    """What names a file names it from where its own file is."""
    file, archive = configuration.distribution.samples_file, configuration.retention.archive
    secret = configuration.notifications.secret_file
    changed: dict[str, Schema] = {"tls": configuration.tls.beside(path.parent.absolute())}
    if file is not None:
        changed["distribution"] = configuration.distribution.model_copy(
            update={"samples_file": str(path.parent.absolute() / file)}
        )
    if archive is not None:
        changed["retention"] = configuration.retention.model_copy(
            update={"archive": str(path.parent.absolute() / archive)}
        )
    if secret is not None:
        changed["notifications"] = configuration.notifications.model_copy(
            update={"secret_file": str(path.parent.absolute() / secret)}
        )
    changed["security"] = configuration.security.beside(path.parent.absolute())
    return configuration.model_copy(update=changed)
