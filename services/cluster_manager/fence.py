"""The fence before a cluster manager: orders are taken from whoever holds the region's lease now, and from nobody else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from services.database.lease_store import IssuedFence
from services.grpc_errors import InvalidArgument, PermissionDenied, PreconditionFailed
from services.security.secret_values import hash_of, matches

STALE_LEASE = "STALE_LEASE"


class Fence:
    """The newest lease of a regional scheduler that is known of here. Its number decides the order, its secret proves the holder.

    `issued` asks for the newest lease that was ever given, and for the hash of its secret. One that was given by a program
    of the version before has none: until it is acquired anew its number alone counts. Without `issued` the first to show a
    number is its holder.
    """

    def __init__(self, issued: Callable[[], Awaitable[IssuedFence]] | None) -> None:
        self._newest = IssuedFence(0, None)
        self._issued = issued

    async def check(self, token: int, secret: str) -> None:
        """Raises PreconditionFailed when there is, or was, a newer lease; InvalidArgument when this token was never issued;
        PermissionDenied when the secret is not the one that was given with it."""
        if token > self._newest.token:
            await self._learn(token, secret)
        if token < self._newest.token:
            raise PreconditionFailed(
                STALE_LEASE,
                f"fencing token {token}",
                f"this caller's lease (fencing token {token}) is over: token {self._newest.token} has been seen",
            )
        secret_hash = self._newest.secret_hash
        if secret_hash is not None and not matches(secret, secret_hash):
            raise PermissionDenied(
                f"fencing_secret is not the one of fencing token {token}: only who was given this lease may act in its name"
            )

    async def _learn(self, token: int, secret: str) -> None:
        """What is known of this number, which is greater than any before; nothing has changed when it was never issued."""
        if self._issued is None:
            self._newest = IssuedFence(token, hash_of(secret))
            return
        found = await self._issued()
        # Another call may have learnt of a newer one meanwhile.
        if found.token > self._newest.token:
            self._newest = found
        if token > self._newest.token:
            raise InvalidArgument.of("fencing_token", f"is {token}, but no such lease was ever given")
