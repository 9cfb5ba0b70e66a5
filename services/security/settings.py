"""Whether callers are asked who they are, and by what the tiers know each other: the section `security` of scheduler.yaml."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from formats.schema import Schema
from services.security.oidc_settings import OidcSettings


class SecuritySettings(Schema):
    """Who may call."""

    authentication: bool = True
    """Whether callers need a token; without, only where the service listens on loopback."""
    tier_token_file: Annotated[str, Field(min_length=1)] | None = None
    """What tiers call each other with; left out: secrets/tier.token in the home. Beside this file."""
    oidc: OidcSettings | None = None
    """An identity provider whose tokens are taken besides; left out: there is none."""

    def beside(self, folder: Path) -> SecuritySettings:
        """With the files that it names in that folder, unless they are named in full."""
        changed: dict[str, object] = {}
        if self.tier_token_file is not None:
            changed["tier_token_file"] = str(folder / self.tier_token_file)
        if self.oidc is not None and self.oidc.jwks_file is not None:
            changed["oidc"] = self.oidc.model_copy(update={"jwks_file": str(folder / self.oidc.jwks_file)})
        return self.model_copy(update=changed)


class AuthenticationNeeded(Exception):
    """A service that others can reach may not leave open who calls."""


def check_loopback(listen: str) -> None:
    """Raises AuthenticationNeeded unless `host:port` can be reached from this machine only."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise AuthenticationNeeded(
            f"security.authentication is off, and {listen} can be reached from other machines: listen on 127.0.0.1, or leave"
            " it on"
        )
