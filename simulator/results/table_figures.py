"""What became of tables in a run, and who waited for them (MAST §5.3: 0.1 % of workloads wait for data)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from domain.events import JsonValue
from simulator.results.distribution import rate_or_null
from simulator.results.run_record import RunRecord


@dataclass(frozen=True, slots=True)
class TableFigures:
    """See docs/results-format.md for each."""

    readers: int
    moves: int
    moved_bytes: int
    waited: int
    waited_share: float | None
    waited_s: float

    def as_json(self) -> dict[str, JsonValue]:
        """The object of docs/results-format.md."""
        return asdict(self)


def table_figures_of(record: RunRecord) -> TableFigures | None:
    """None for a run in which nothing reads tables, and for one that was made from a log, which does not count this."""
    counts = record.counts
    if counts.readers_of_tables == 0:
        return None
    return TableFigures(
        readers=counts.readers_of_tables,
        moves=counts.table_moves,
        moved_bytes=counts.moved_table_bytes,
        waited=counts.waited_for_data,
        waited_share=rate_or_null(counts.waited_for_data, counts.readers_of_tables),
        waited_s=counts.waited_for_data_s,
    )
