"""After every change of a cluster's capacity its invariants are computed anew, whatever a test is about.

A test that makes thousands of changes, or few in a large cluster, gets a sample of checks: what a check costs grows with
what it looks at, so each test has an allowance, counted in machines and placements looked at and not in seconds, so that
the same changes are checked in every run. At the end of a test every capacity that it changed is checked once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import pytest

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.undo_log import Tentatively

CHANGES = (
    "hold",
    "begin_eviction",
    "release",
    "set_standing",
    "begin_run",
    "replace_placements",
    "set_machine_state",
    "pass_time",
)
"""The public methods of `ClusterCapacity` that change it; `suppose_...` must leave it as it was, which the next check sees."""

FIRST_ALLOWANCE = 5_000
"""Machines and placements that each test may have looked at before checks are sampled."""
ALLOWANCE_PER_CHANGE = 1
_CHECK_ITSELF = 20
"""What a check costs of an empty cluster, in the same unit."""

BREAKS_CAPACITY = "breaks_capacity"
"""The marker of tests that put capacities out of order on purpose."""


class CapacityChecks:
    """Checks what is changed, as far as its allowance goes."""

    def __init__(self) -> None:
        self.checks = 0
        self.changes = 0
        self.active = False
        self._allowance = 0
        self._changed: WeakSet[ClusterCapacity] = WeakSet()
        self._tentative: WeakSet[ClusterCapacity] = WeakSet()

    def begin(self, *, active: bool) -> None:
        """A test begins."""
        self.active = active
        self.checks = self.changes = 0
        self._allowance = FIRST_ALLOWANCE
        self._changed.clear()
        self._tentative.clear()

    def changed(self, capacity: ClusterCapacity) -> None:
        """Checks it if the allowance suffices. Raises InvariantBroken."""
        if not self.active:
            return
        self.changes += 1
        self._changed.add(capacity)
        if capacity.shared.undo_log.tentative:
            self._tentative.add(capacity)
        self._check_if_allowed(capacity)

    def undone(self) -> None:
        """Checks what was changed tentatively, if that is over. Raises InvariantBroken."""
        over = [capacity for capacity in self._tentative if not capacity.shared.undo_log.tentative]
        for capacity in sorted(over, key=lambda capacity: capacity.cluster):
            self._tentative.discard(capacity)
            self._check_if_allowed(capacity)

    def _check_if_allowed(self, capacity: ClusterCapacity) -> None:
        self._allowance += ALLOWANCE_PER_CHANGE
        cost = _cost(capacity)
        if self._allowance >= cost:
            self._allowance -= cost
            self._check(capacity)

    def end(self) -> None:
        """Checks all that was changed and is still there. Raises InvariantBroken."""
        if self.active:
            self.active = False
            for capacity in sorted(self._changed, key=lambda capacity: capacity.cluster):
                self._check(capacity)

    def _check(self, capacity: ClusterCapacity) -> None:
        # While something is supposed, arrays differ from what is held on purpose.
        if not capacity.supposes:
            self.checks += 1
            capacity.check()


def _cost(capacity: ClusterCapacity) -> int:
    attempts = capacity.attempts
    return _CHECK_ITSELF + len(capacity.layout.machine_ids) + 2 * int(attempts.live[0])


_CHECKS = CapacityChecks()


def _checked(change: Callable[..., Any]) -> Callable[..., Any]:
    def changing(self: ClusterCapacity, *arguments: Any, **named: Any) -> Any:
        answer = change(self, *arguments, **named)
        _CHECKS.changed(self)
        return answer

    return changing


def _undone(end: Callable[..., None]) -> Callable[..., None]:
    def ending(self: Tentatively, *error: Any) -> None:
        end(self, *error)
        _CHECKS.undone()

    return ending


@pytest.fixture(scope="package", autouse=True)
def capacities_check_themselves() -> Iterator[None]:
    """Installed once per folder, before any of its fixtures changes a capacity."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(ClusterCapacity, name, _checked(getattr(ClusterCapacity, name)))
        patch.setattr(Tentatively, "__exit__", _undone(Tentatively.__exit__))
        yield


@pytest.fixture(autouse=True)
def capacity_checks(request: pytest.FixtureRequest) -> Iterator[CapacityChecks]:
    """Fails a test in which a capacity comes to be out of order."""
    _CHECKS.begin(active=request.node.get_closest_marker(BREAKS_CAPACITY) is None)
    yield _CHECKS
    _CHECKS.end()
