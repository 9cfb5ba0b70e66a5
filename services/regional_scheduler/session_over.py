"""The one way in which a session ends on its own."""

from __future__ import annotations


class SessionOver(Exception):
    """What the session has in memory may be out of date: the tier begins a new one from what the database says."""


class RegionGone(SessionOver):
    """The fleet has no such region, or not any more: there is nothing to begin until it has."""
