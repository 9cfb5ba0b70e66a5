"""How much of the store of packages a tenant may take: what is stored for it, and what it is sending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from services.grpc_errors import PreconditionFailed

LoadStored: TypeAlias = Callable[[], Awaitable[Mapping[str, int]]]
"""Bytes of the packages that are stored for tenants, besides the one that is sent."""

_MIB = 2**20
_DAY_S = 86_400.0


class PackageShares:
    """What tenants are sending at this moment; with what is stored for each, it stays within `greatest_bytes` (None: no bound)."""

    def __init__(self, greatest_bytes: int | None, unused_kept_real_s: float) -> None:
        self._greatest_bytes = greatest_bytes
        self._unused_kept_real_s = unused_kept_real_s
        self._under_way: Counter[str] = Counter()
        self.ended = 0
        """How many uploads have: what was loaded before the last one may lack what that has stored."""

    @contextmanager
    def upload(self, load_stored: LoadStored, tenants: Collection[str]) -> Iterator[PackageShare]:
        """One upload for these tenants; what it takes is given back at the end of the block, when it is stored or never will be."""
        share = PackageShare(self, load_stored, sorted(tenants))
        try:
            yield share
        finally:
            self._under_way.subtract(dict.fromkeys(share.tenants, share.taken_bytes))
            self._under_way += Counter()  # forgets those that send nothing
            self.ended += 1

    def take(self, share: PackageShare, size_bytes: int) -> None:
        """By what is known to be stored. Raises PreconditionFailed where a tenant has no room for it: nothing is taken then."""
        for tenant in share.tenants:
            there = share.stored_bytes.get(tenant, 0) + self._under_way[tenant]
            if self._greatest_bytes is not None and there + size_bytes > self._greatest_bytes:
                raise PreconditionFailed(
                    "PACKAGES",
                    tenant,
                    f"tenant {tenant} has {there / _MIB:,.1f} MiB of packages and may have {self._greatest_bytes / _MIB:,.1f} MiB"
                    " (storage.greatest_tenant_package_bytes); those that no workload has needed for"
                    f" {self._unused_kept_real_s / _DAY_S:g} days are removed by themselves; leave files out with"
                    " .topmastignore, or ask whoever runs the service for more",
                )
        share.taken_bytes += size_bytes
        self._under_way.update(dict.fromkeys(share.tenants, size_bytes))


class PackageShare:
    """What one upload has taken so far."""

    def __init__(self, shares: PackageShares, load_stored: LoadStored, tenants: list[str]) -> None:
        self._shares = shares
        self._load_stored = load_stored
        self._loaded_after: int | None = None
        """So many uploads had ended when it was loaded what is stored."""
        self.stored_bytes: Mapping[str, int] = {}
        self.tenants = tenants
        self.taken_bytes = 0

    async def take(self, size_bytes: int) -> None:
        """As `PackageShares.take`, with what other uploads have stored meanwhile."""
        while self.tenants and self._loaded_after != self._shares.ended:
            ended = self._shares.ended
            self.stored_bytes = await self._load_stored()
            self._loaded_after = ended
        self._shares.take(self, size_bytes)
