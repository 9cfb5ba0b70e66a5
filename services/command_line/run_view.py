"""What simulated runs came to, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from services.command_line.output import TextTable, note
from services.command_line.wording import counted

if TYPE_CHECKING:
    from services.simulation.inputs import SimulationInputs, TableMovesSource
    from services.simulation.run import FinishedRun
    from simulator.engine.settings import SimulationSettings
    from simulator.results.comparison import Comparison, Contrast
    from simulator.results.excess_waits import AgainstPrivate
    from simulator.results.figures import RunFigures


def figures_of_run(run: FinishedRun) -> RunFigures:
    from simulator.results.figures import figures_of

    return figures_of(run.record, run.cost)


def figures_view(labels: Sequence[str], figures: Sequence[RunFigures]) -> TextTable:
    """A column for each run."""
    from simulator.report.overview import figures_table

    shown = figures_table(labels, figures)
    return TextTable("Figures", ("figure", *shown.head[1:]), shown.rows, right=frozenset(range(1, len(shown.head))))


def pairs_view(comparison: Comparison) -> TextTable:
    """A row for each policy against the baseline: which won, and what it came to with its 95 % confidence interval."""
    head = (
        f"against {comparison.policies[0]}",
        "workloads",
        "won",
        "lost",
        "mean completion",
        "95 % interval",
        "mean queueing",
        "95 % interval",
    )
    rows = [
        (
            pair.policy,
            f"{pair.workloads:,}",
            f"{pair.won:,}",
            f"{pair.lost:,}",
            *_ratio(pair.jct_s),
            *_ratio(pair.queueing_s),
        )
        for pair in comparison.pairs
    ]
    return TextTable("Comparison", head, rows, right=frozenset(range(1, len(head))))


def _ratio(contrast: Contrast | None) -> tuple[str, str]:
    """`× 0.831` and `0.792 to 0.884`."""
    if contrast is None or not isfinite(contrast.ratio.value):
        return "", ""
    ratio = contrast.ratio
    return f"× {ratio.value:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}"


def run_document(run: FinishedRun, figures: RunFigures) -> dict[str, object]:
    """The figures, how they compare with private clusters, and which laws they violate."""
    against = run.against_private
    return {
        **figures.as_json(),
        "excess_wait_s": against.excess_wait_s.as_json() if against is not None else None,
        "against_private": against.as_json() if against is not None else None,
        "violated_laws": list(run.laws),
    }


def private_view(label: str, against: AgainstPrivate) -> TextTable:
    """A row for each tenant that owns cells."""
    from simulator.report.wording import duration

    rows = [
        (
            name,
            f"{tenant.workloads:,}",
            *(duration(one.mean) for one in (tenant.private_queueing_s, tenant.queueing_s)),
            f"{tenant.guaranteed:,}",
            f"{tenant.later:,}",
            duration(tenant.excess_wait_s.max),
        )
        for name, tenant in against.by_tenant.items()
    ]
    head = (f"{label}: tenant", "workloads", "queueing alone", "shared", "guaranteed", "later than alone", "at most by")
    return TextTable("Against private clusters", head, rows, right=frozenset(range(1, len(head))))


def inputs_document(inputs: SimulationInputs, settings: SimulationSettings) -> dict[str, object]:
    """What was simulated, for programs."""
    from simulator.inputs.fleets import gpus_of_regions

    regions, sharing = inputs.fleet.regions, inputs.source.sharing
    return {
        "trace": str(inputs.source.trace) if inputs.source.trace is not None else None,
        "format": inputs.trace.format,
        "workloads": inputs.workloads,
        "bad_rows": inputs.trace.row_report.bad_rows,
        "machines": sum(1 for region in regions for _ in region.machines()),
        "region_gpus": {str(region): gpus for region, gpus in gpus_of_regions(inputs.fleet)},
        "tenants": str(inputs.source.tenants) if inputs.source.tenants is not None else None,
        "assign_regions": inputs.source.assign_regions,
        "synthesize_tables": inputs.source.synthesize_tables,
        "loans": str(inputs.source.loans) if inputs.source.loans is not None else None,
        "inference": list(inputs.source.inference),
        **_table_moves_document(inputs.source.table_moves),
        "distribution": str(inputs.source.distribution) if inputs.source.distribution is not None else None,
        "snapshot": str(inputs.source.snapshot) if inputs.source.snapshot is not None else None,
        "default_duration_s": inputs.source.default_duration_s,
        "vcs": str(sharing.file) if sharing.file is not None else None,
        "vcs_of_trace": sharing.of_trace,
        "with_quotas": sharing.with_quotas,
        "against_private": sharing.against_private,
        "settings": settings.model_dump(mode="json")
        | {
            name: getattr(settings, name).model_dump(mode="json", exclude_unset=True) for name in ("eviction", "levels")
        },
    }


def _table_moves_document(given: TableMovesSource | None) -> dict[str, object]:
    return {
        "table_moves": None if given is None or given.file is None else str(given.file),
        "copies_on_demand": given is not None and given.on_demand,
        "link_bytes_per_s": None if given is None else given.link_bytes_per_s,
    }


def tell_run(label: str, run: FinishedRun, figures: RunFigures, inputs: SimulationInputs) -> None:
    """What one must know about a run besides its figures, on standard error."""
    from simulator.report.overview import broken_off_sentence

    sentence = broken_off_sentence(label, run.record, figures)
    if sentence:
        came = f"{figures.workloads:,} of {counted(inputs.workloads, 'workload')} had been submitted"
        note(f"{sentence} ({came})")
    elif figures.unfinished:
        note(f"{label}: {counted(figures.unfinished, 'workload')} had not ended when nothing more could happen")
    if figures.refused:
        note(
            f"{label}: {counted(figures.refused, 'workload')} of {figures.workloads:,} refused: no region could ever "
            "host them (GPU model, size, named region, tables); 'topmast trace inspect' shows what they ask for"
        )
    if run.from_cache:
        note(f"{label}: this run was made before and comes from the cache; --no-cache makes it anew")
    if run.not_kept:
        note(f"{label}: this run could not be kept in the cache ({run.not_kept})")
    for law in run.laws:
        note(f"VIOLATED by {label}: {law}")
    if run.laws:
        note(f"the tables of {label} contradict themselves: its figures cannot be trusted; please report it")
