"""Capacities that tests of this folder change are checked after every change."""

from tests.capacity_checks import capacities_check_themselves, capacity_checks

__all__ = ["capacities_check_themselves", "capacity_checks"]
