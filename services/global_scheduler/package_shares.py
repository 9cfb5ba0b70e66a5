"""How much of the store of packages a tenant may take: what is stored for it, and what it is sending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from services.grpc_errors import PreconditionFailed

_MIB = 2**20
_DAY_S = 86_400.0


class PackageShares:
    """What tenants are sending at this moment; with what is stored for each, it stays within `greatest_bytes` (None: no bound)."""

    def __init__(self, greatest_bytes: int | None, unused_kept_real_s: float) -> None:
        self._greatest_bytes = greatest_bytes
        self._unused_kept_real_s = unused_kept_real_s
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def upload(self, stored_bytes: Mapping[str, int], tenants: Collection[str]) -> Iterator[PackageShare]:
        """One upload for these tenants, of whom so much is stored besides; what it takes is given back at the end of the block."""
        share = PackageShare(self, stored_bytes, sorted(tenants))
        try:
            yield share
        finally:
            self._under_way.subtract(dict.fromkeys(share.tenants, share.taken_bytes))
            self._under_way += Counter()  # forgets those that send nothing

    def take(self, share: PackageShare, size_bytes: int) -> None:
        """Raises PreconditionFailed where a tenant has no room for it: nothing is taken then."""
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

    def __init__(self, shares: PackageShares, stored_bytes: Mapping[str, int], tenants: list[str]) -> None:
        self._shares = shares
        self.stored_bytes = stored_bytes
        self.tenants = tenants
        self.taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """As `PackageShares.take`."""
        self._shares.take(self, size_bytes)
