"""Which addresses a service may be made to call by its users: neither its machine's own, nor what only its machines can reach."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TypeAlias

from services.notifications.settings import NotificationSettings

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What is decided for each address that a host's name stands for, before it is connected to."""

    allowed: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    forbidden: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    loopback: bool

    def refusal(self, address: str) -> str | None:
        """Why that address is not told, in a sentence's end; None: it may be."""
        found: Address = ipaddress.ip_address(address.partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        if mapped is not None:
            found = mapped
        if found.is_loopback or found.is_unspecified:
            return (
                None if self.loopback else f"{found} is the scheduler's own machine, which this service does not tell"
            )
        if found.is_multicast or found.is_reserved:
            return f"{found} is no address of a host"
        if any(found in network for network in self.forbidden):
            return f"{found} is in a network that this service does not tell"
        if self.allowed and not any(found in network for network in self.allowed):
            return f"{found} is in none of the networks that this service tells"
        return None


def target_rules(settings: NotificationSettings, listens_on: str) -> TargetRules:
    """As they are configured. `listens_on` is the service's own address: who can reach only its machine may tell it as well."""
    return TargetRules(
        tuple(ipaddress.ip_network(text) for text in settings.allowed_networks),
        tuple(ipaddress.ip_network(text) for text in settings.forbidden_networks),
        _is_loopback(listens_on) if settings.loopback is None else settings.loopback,
    )


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
