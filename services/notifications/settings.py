"""The section `notifications` of scheduler.yaml: who may be told, how long one waits, and with what it is signed."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from formats.problems import FieldProblem, FormatError
from formats.schema import Schema
from services.notifications.signing import SecretUnusable, read_secret

_DAY_S = 86_400.0

FORBIDDEN_NETWORKS = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32")
"""Link-local addresses, and those at which clouds tell their machines secrets."""


def _network(text: str) -> str:
    """Raises ValueError for what is no network."""
    return str(ipaddress.ip_network(text))


Network = Annotated[str, Field(max_length=64), AfterValidator(_network)]


class NotificationSettings(Schema):
    """How users' URLs are told of what happens to their workloads."""

    secret_file: Annotated[str, Field(min_length=1)] | None = None
    """Its content signs them, for the receivers to check; null: `notification-secret` in TOPMAST_HOME, made when there is none."""
    loopback: bool | None = None
    """Whether addresses of the machine itself may be told; null: where the service listens on one of these, as a local one does."""
    allowed_networks: list[Network] = Field(default_factory=list)
    """Only addresses in these are told; empty: all that are not forbidden."""
    forbidden_networks: list[Network] = Field(default_factory=lambda: list(FORBIDDEN_NETWORKS))
    timeout_real_s: float = Field(default=10.0, ge=0.1, le=300.0)
    """So long a receiver has, from the name to the end of its answer."""
    give_up_after_real_s: float = Field(default=_DAY_S, ge=1.0, le=30 * _DAY_S)
    """A notification that could not be delivered for so long is given up."""

    def check(self, source: str = "scheduler.yaml") -> None:
        """Raises FormatError for a secret that cannot be read."""
        if self.secret_file is not None:
            try:
                read_secret(Path(self.secret_file))
            except SecretUnusable as unusable:
                raise FormatError(source, [FieldProblem("notifications.secret_file", str(unusable))]) from unusable
