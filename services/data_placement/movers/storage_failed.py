"""Why the storage of a region does not do what it is asked, in a sentence that tells nobody how to get in."""

from __future__ import annotations

from services.storage.failure_words import what_failed


class StorageFailed(Exception):
    """The storage of a region is full, refuses, or cannot be reached."""

    def __init__(self, region: str, url: str, error: Exception) -> None:
        self.region = region
        super().__init__(f"the storage of region {region} {what_failed(error, url)}")
