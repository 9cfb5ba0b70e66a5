"""What an operator may set: one YAML file (or nothing), checked by pydantic, handed to every tier.

Intervals that end in `_real_s` are real seconds, whatever the service's clock; all others are the service's.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.tenant import LOWEST_PRIORITY
from global_scheduler.credit import CreditSettings
from global_scheduler.ordering import ORDERINGS
from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.scan_settings import QueueRule, ScanSettings
from regional_scheduler.rounds import AuctionSettings


class ConfigurationError(Exception):
    """The configuration cannot be used; the message names file, field and remedy, one line each."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScanConfiguration(_Section):
    """When the scan pass runs, and what it weighs (MAST §4.2)."""

    period_real_s: float = Field(default=5.0, gt=0)
    """At the latest so often."""
    debounce_real_s: float = Field(default=0.1, ge=0)
    """After something happened, so long; more when a pass takes long itself."""
    age_weight_per_s: float = Field(default=CreditSettings().age_weight_per_s, ge=0)
    age_cap_s: float = Field(default=CreditSettings().age_cap_s, ge=0)
    fairness_weight: float = Field(default=CreditSettings().fairness_weight, ge=0)
    usage_window_s: float = Field(default=CreditSettings().usage_window_s, gt=0)
    ordering: tuple[str, ...] = (CreditOrdering().name,) * (LOWEST_PRIORITY + 1)

    def settings(self) -> ScanSettings:
        """As the core wants it; raises ConfigurationError for an ordering policy that does not exist."""
        unknown = sorted(set(self.ordering) - set(ORDERINGS))
        if unknown or len(self.ordering) != LOWEST_PRIORITY + 1:
            raise ConfigurationError(
                f"scan.ordering: name one of {', '.join(sorted(ORDERINGS))} for each of the {LOWEST_PRIORITY + 1}"
                f" priorities, not {list(self.ordering)}"
            )
        credit = CreditSettings(
            age_weight_per_s=self.age_weight_per_s,
            age_cap_s=self.age_cap_s,
            fairness_weight=self.fairness_weight,
            usage_window_s=self.usage_window_s,
        )
        return ScanSettings(credit, tuple(QueueRule(ORDERINGS[name]) for name in self.ordering))


class AuctionConfiguration(_Section):
    """How rounds are cut; a window of 1 is the paper (MAST §4.3)."""

    window: int = Field(default=64, ge=1, le=1024)
    answer_timeout_real_s: float = Field(default=2.0, gt=0)
    poll_real_s: float = Field(default=0.5, gt=0)
    """A region looks at least so often, even if no notification reaches it."""

    def settings(self) -> AuctionSettings:
        return AuctionSettings(window=self.window)


class LeaseConfiguration(_Section):
    """Who serves what: a lease that is not renewed in time is taken over."""

    duration_real_s: float = Field(default=3.0, gt=0)


class Configuration(_Section):
    """Everything, with defaults that suit a small fleet."""

    scan: ScanConfiguration = ScanConfiguration()
    auction: AuctionConfiguration = AuctionConfiguration()
    lease: LeaseConfiguration = LeaseConfiguration()


def load_configuration(path: Path | None) -> Configuration:
    """The file's settings, or the defaults when there is no file; raises ConfigurationError."""
    if path is None:
        return Configuration()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    try:
        configuration = Configuration.model_validate(document or {})
    except ValidationError as error:
        lines = [f"{path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        raise ConfigurationError("\n".join(lines)) from error
    configuration.scan.settings()
    return configuration
