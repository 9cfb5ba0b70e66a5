"""The one way in which a session ends on its own."""

from __future__ import annotations


class SessionOver(Exception):
    """What the session has in memory may be out of date: the tier begins a new one from what the database says."""
