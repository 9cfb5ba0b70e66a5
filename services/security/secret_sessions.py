"""The token with which the tasks of an attempt report: it reaches that attempt and no other.

It is derived from a secret of the cluster's manager, so that the next manager knows it too, and nothing of it is stored.
"""

from __future__ import annotations

import hashlib
import hmac

from domain.placement import AttemptKey
from services.security.secret_values import new_secret


class ForeignSession(Exception):
    """The caller has not shown that it is a task of this attempt. `shown`: it has shown something else."""

    def __init__(self, sentence: str, *, shown: bool) -> None:
        self.shown = shown
        super().__init__(sentence)


class SessionTokens:
    """Gives and checks the tokens of one cluster's attempts."""

    def __init__(self, secret: str | None = None) -> None:
        """`secret` None: one that only this process knows, so that no other checks what it gives."""
        self._secret = (secret or new_secret()).encode()

    def token_of(self, key: AttemptKey) -> str:
        """For the environment of this attempt's tasks."""
        # A name has no NUL: no two attempts are the same text.
        return hmac.new(self._secret, f"{key.workload}\0{key.attempt}".encode(), hashlib.sha256).hexdigest()

    def check(self, key: AttemptKey, token: str) -> None:
        """Raises ForeignSession unless this is the attempt's token; takes equally long wherever the two differ."""
        if not token:
            raise ForeignSession(
                f"task.token is missing: tasks of {key.workload}#{key.attempt} have it as TOPMAST_SESSION_TOKEN",
                shown=False,
            )
        if not hmac.compare_digest(token.encode(), self.token_of(key).encode()):
            raise ForeignSession(
                f"task.token is not the one of {key.workload}#{key.attempt}: a task reports for its own attempt only",
                shown=True,
            )
