"""A notification that was not delivered."""

from __future__ import annotations


class SendFailed(Exception):
    """It was not delivered; the message says why in few words, and has nothing of the URL but its host in it."""

    def __init__(self, reason: str, *, for_good: bool = False) -> None:
        self.for_good = for_good
        """It never will be."""
        super().__init__(reason)
