"""Identities of an OpenID Connect provider: the section `security.oidc` of scheduler.yaml."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from formats.schema import Schema
from services.security.roles import MAY_HAVE_TENANTS, Role

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Asymmetric ones only: with a shared secret, or with none, whoever can check a token could make one."""

_Text = Annotated[str, Field(min_length=1)]
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class OidcSettings(Schema):
    """Whose tokens (JWT) are taken, and what their claims mean."""

    issuer: _Text
    """The claim `iss` must be this."""
    audience: _Text
    """The claim `aud` must have this: tokens for other services are not taken."""
    jwks_file: _Text | None = None
    """The keys of the issuer; beside this file."""
    jwks_url: _Text | None = None
    """Where they are served instead, by https."""
    algorithms: list[Algorithm] = Field(default=["RS256", "ES256"], min_length=1)
    leeway_s: float = Field(default=30.0, ge=0, le=300.0)
    """So far clocks may be apart."""
    name_claim: _Text = "sub"
    role_claim: _Text = "groups"
    """A word or a list of words."""
    roles: dict[_Text, Annotated[Role, Field(strict=False)]] = Field(min_length=1)
    """What the words of that claim mean; of several the one that may do most counts. Who has none is refused."""
    tenants_claim: _Text = "tenants"
    """A word or a list of words: the tenants, for role tenant, and for read-only where it is there."""

    @field_validator("roles")
    @classmethod
    def _no_tiers(cls, roles: dict[str, Role]) -> dict[str, Role]:
        if Role.TIER in roles.values():
            raise ValueError("cannot make anybody a tier: tiers have tokens of their own (topmast token create)")
        return roles

    @model_validator(mode="after")
    def _check(self) -> OidcSettings:
        if (self.jwks_file is None) == (self.jwks_url is None):
            raise ValueError("needs jwks_file or jwks_url, and not both: the keys by which tokens are checked")
        if self.jwks_url is not None:
            url = urlsplit(self.jwks_url)
            if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
                raise ValueError(
                    "has a jwks_url that is not https: whoever is on the way could put keys of their own there"
                )
        return self

    def role_of(self, words: list[str]) -> Role | None:
        """The role that may do most among those that the words mean; None: they mean none."""
        found = {self.roles[word] for word in words if word in self.roles}
        return next((role for role in Role if role in found), None)

    def tenants_of(self, role: Role, words: list[str] | None) -> frozenset[str] | None:
        """None: all. `words` None: there is no such claim; one that names nobody is for nobody, whatever the role. A tenant without any
        tenants sees nothing."""
        if role not in MAY_HAVE_TENANTS or (role is Role.READ_ONLY and words is None):
            return None
        return frozenset(words or ())
