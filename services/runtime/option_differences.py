"""Options of `topmast up` that a service which is up already was started without, or with another value."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.runtime.host_options import HostOptions

_OPTIONS = {
    "fleet_file": "--fleet",
    "tenants_file": "--tenants",
    "configuration_file": "--config",
    "port": "--port",
    "listen_host": "--listen-host",
    "database_url": "--database-url",
    "ray_address": "--ray-address",
    "clock_speed": "--clock-speed",
    "executor": "--emulate",
    "tiers": "--tiers",
    "standby": "--standby",
    "metrics_port": "--metrics-port",
}
_RESTART = "take the service down (topmast down) and bring it up with it"
_APPLY = "topmast apply -f FILE applies it to what is up"
_REMEDIES = {
    "fleet_file": _APPLY,
    "tenants_file": _APPLY,
    "configuration_file": f"settings are read at the start: {_RESTART}",
    "clock_speed": "the clock is kept from the first start of a home on: take another home (--home)",
}
_FILES = ("fleet_file", "tenants_file", "configuration_file")
_URL = "database_url"


@dataclass(frozen=True, slots=True)
class OptionDifference:
    """One option that was not taken over."""

    option: str
    asked: str
    running: str | None
    """What the service was started with; None: without, or it does not say."""
    remedy: str

    def __str__(self) -> str:
        asked = f" {self.asked}" if self.asked else ""
        if self.running is None:
            running = "the service was started without it"
        else:
            running = f"the service was started with {self.running}"
        return f"{self.option}{asked} was not taken over: {running}; {self.remedy}"


def digests_of(options: HostOptions) -> dict[str, str]:
    """Of the content of the files that are named, by field; of one that cannot be read there is none."""
    digests: dict[str, str] = {}
    for field in _FILES:
        file: Path | None = getattr(options, field)
        if file is not None and file.is_file():
            digests[field] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests


def option_differences(
    asked: HostOptions,
    asked_digests: Mapping[str, str],
    running: Mapping[str, Any],
    running_digests: Mapping[str, str],
) -> tuple[OptionDifference, ...]:
    """The options that were typed (`model_fields_set`) and are not as the running service has them; files by their content.

    `running`: the options with which the service was started, as JSON; nothing where it does not say.
    """
    typed = asked.model_dump(mode="json")
    found: list[OptionDifference] = []
    for field, option in _OPTIONS.items():
        value, its = typed[field], running.get(field)
        if field not in asked.model_fields_set or value is None or (field in {"port", "metrics_port"} and value == 0):
            continue
        if field in _FILES:
            if field in asked_digests and asked_digests[field] == running_digests.get(field):
                continue
            if its == value:
                its = f"{its} as it was then"
        elif value == its or (field == _URL and its is not None):
            continue
        found.append(_difference(field, option, value, its))
    return tuple(found)


def _difference(field: str, option: str, value: object, its: object) -> OptionDifference:
    if field in {"executor", "standby", _URL}:
        # A flag has no value, and what may hold a password is not repeated.
        return OptionDifference(option, "", None, _RESTART)
    return OptionDifference(option, str(value), None if its is None else str(its), _REMEDIES.get(field, _RESTART))
