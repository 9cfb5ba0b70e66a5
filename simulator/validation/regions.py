"""I3: a workload runs in one region at a time, and that region held all its input tables.

That attempts never overlap is I8's business, that an attempt's machines are all in its region I1's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.fleet import Fleet
from domain.table import Table
from simulator.validation.report import Findings, Invariant


class Regions:
    """Which regions there are, and which tables they hold: as the fleet file says, until `table_moved` says otherwise."""

    def __init__(self, fleet: Fleet, tables: Iterable[Table], findings: Findings) -> None:
        self.checks = 0
        self._findings = findings
        self._regions = {str(region.region) for region in fleet.regions}
        self._homes: dict[str, str] = {}
        self._holding: dict[str, set[str]] = {}
        self._newest_held: dict[tuple[str, str], int] = {}
        """So many of a table's newest partitions were copied to a region that has no copy of it."""
        for table in tables:
            self._homes[table.table] = table.home
            self._holding[table.table] = {str(region) for region in table.regions}

    def check(self, region: str, tables: Sequence[tuple[str, bool, int | None]], allowed: Sequence[str]) -> None:
        """An attempt in this region, of a workload with these (table, fresh, newest partitions) inputs and allowed regions (none:
        all)."""
        self.checks += 1
        if region not in self._regions:
            self._add(f"is dispatched to region {region}, which is not in the fleet")
            return
        if allowed and region not in allowed:
            self._add(f"is dispatched to region {region}, but it may run in {', '.join(allowed)} only")
        for table, fresh, newest in tables:
            holding = self._holding.get(table)
            if holding is None:
                self._add(f"is dispatched although its input table {table} is not in the fleet")
            elif region not in holding and self._holds_newest(table, region, newest):
                continue
            elif region not in holding:
                self._add(
                    f"is dispatched to region {region}, which does not hold its input table {table}"
                    f" ({', '.join(sorted(holding))} did)"
                )
            elif fresh and region != self._homes[table]:
                self._add(
                    f"is dispatched to region {region}, but needs table {table} fresh, as only its home region"
                    f" {self._homes[table]} has it"
                )

    def table_moved(
        self, table: str, source: str, target: str, home: str, replicas: Sequence[str], newest: int | None = None
    ) -> None:
        """A table has got a complete copy in `target`, or one of so many of its newest partitions; `source` was its home,
        `home` and `replicas` are where it is now.
        """
        self.checks += 1
        if newest is not None:
            self._newest_held[table, target] = max(newest, self._newest_held.get((table, target), 0))
        elif target not in (home, *replicas):
            self._add(f"has table {table} moved to {target}, and then not there")
        for region in (target, home):
            if region not in self._regions:
                self._add(f"has table {table} in region {region}, which is not in the fleet")
        before = self._homes.get(table)
        if before is not None and before != source:
            self._add(f"has table {table} moved from {source}, but its home was {before}")
        if home not in (source, target):
            self._add(f"has the home of table {table} go to {home}, which had no copy by that")
        self._homes[table] = home
        self._holding[table] = {home, *replicas}

    def _holds_newest(self, table: str, region: str, newest: int | None) -> bool:
        return newest is not None and self._newest_held.get((table, region), 0) >= newest

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I3, sentence)
