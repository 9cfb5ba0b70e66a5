"""A folder or bucket (fsspec URL) of which more is known than how fsspec reaches it: what messages call it, and how it fails.

Everything here waits for the storage: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from services.storage.failure_words import shown, what_failed

PART_PREFIX = ".part-"
"""So the names begin of what is not whole yet."""

_Answer = TypeVar("_Answer")
_Given = ParamSpec("_Given")


class StoreFailed(Exception):
    """The store is full, refuses, or cannot be reached; says which."""


class StorageFolder:
    """All that it is asked raises `failure` where the storage does not do it."""

    def __init__(self, url: str, called: str, failure: type[StoreFailed] = StoreFailed) -> None:
        """`called` is what messages call it, such as "the store of packages"."""
        # It takes a while to import, and most processes of a service never need it.
        from fsspec.core import url_to_fs

        self.url = shown(url)
        self._url = url
        self._called = called
        self._failure = failure
        try:
            # What others write is to be seen at once.
            self.files, self.root = url_to_fs(url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise failure(f"{called}, {self.url}, cannot be reached: {error}") from error

    @property
    def renames(self) -> bool:
        """Whether it can give a file another name in one step, as folders do and object stores do not."""
        from fsspec import AbstractFileSystem

        return type(self.files).mv is not AbstractFileSystem.mv

    def rename(self, part: str, place: str) -> None:
        """In one step where the storage can do that; else there is all of it, or nothing, under the new name."""
        if self.renames:
            self.ask(self.files.mv, part, place)
        else:
            # Its own mv takes names with *, ? or [ in them for patterns.
            self.ask(self.files.cp_file, part, place)
            self.ask(self.files.rm_file, part)

    def ask(self, call: Callable[_Given, _Answer], *args: _Given.args, **options: _Given.kwargs) -> _Answer:
        """That there is no such file is said as it is; every other failure is `failure`."""
        try:
            return call(*args, **options)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def ask_to_write(self, call: Callable[_Given, _Answer], *args: _Given.args, **options: _Given.kwargs) -> _Answer:
        """That there is no such folder or bucket is a failure too."""
        try:
            return self.ask(call, *args, **options)
        except FileNotFoundError as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreFailed:
        return self._failure(f"{self._called}, {self.url}, {what_failed(error, self._url)}")
