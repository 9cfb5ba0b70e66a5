"""A plan of where tables should be, as tables for people: of a folder and of the service alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.command_line.output import TextTable

_ENDLESS = "endless"
"""Demand where there is no supply."""


def plan_tables(figures: Mapping[str, object]) -> list[TextTable]:
    """The figures of a plan (`topmast data plan --json`): before and after, by region, and of the largest communities."""
    tables = [
        TextTable(
            "High priority only, where it says demand", ("what", "before", "after"), _costs(figures), frozenset({1, 2})
        ),
        TextTable(
            "Regions",
            ("region", "load before", "after", "stored before", "after"),
            [
                (
                    str(region["region"]),
                    *(_number(region[name], ".2f") for name in ("load_before", "load_after")),
                    *(_number(region[name], ".1%") for name in ("stored_before", "stored_after")),
                )
                for region in _objects(figures.get("by_region"))
            ],
            frozenset({1, 2, 3, 4}),
        ),
    ]
    communities = _objects(figures.get("communities"))
    if communities:
        tables.append(_communities(communities))
    return tables


def _costs(figures: Mapping[str, object]) -> list[tuple[str, ...]]:
    objective = figures.get("objective")
    cost = objective if isinstance(objective, dict) else {"before": {}, "after": {}}
    rows = [
        (words, *(_number(cost[when].get(term), ".4f") for when in ("before", "after")))
        for words, term in (
            ("cost", "total"),
            ("  reads across regions", "reads"),
            ("  GPU demand beside supply", "gpu"),
            ("  storage beside capacity", "storage"),
        )
    ]
    if figures.get("bound") is not None:
        rows.append(("  no placement costs less than", "", _number(figures["bound"], ".4f")))
    overload = ("overload_before", "overload_after")
    rows.append(
        ("most overloaded region, demand/supply", *(_number(figures.get(each), ".2f", _ENDLESS) for each in overload))
    )
    return rows + [
        (words, _number(figures.get(before), form), _number(figures.get(after), form))
        for words, before, after, form in (
            ("  deviation over regions", "overload_deviation_before", "overload_deviation_after", ".2f"),
            ("trained at home", "home_training_rate_before", "home_training_rate", ".2%"),
            ("collocated with GPUs", "collocation_rate_before", "collocation_rate", ".2%"),
            ("bytes read across regions", "cross_region_bytes_before", "cross_region_bytes", ".4g"),
        )
    ]


def _communities(communities: Sequence[Mapping[str, object]]) -> TextTable:
    rows = [
        (
            str(one["name"]),
            _number(one["tables"], ","),
            _number(one["bytes"], ".4g"),
            _number(one["jobs"], ","),
            *(_places(one[when]) for when in ("before", "after")),
        )
        for one in communities
    ]
    heads = ("community", "tables", "bytes", "jobs", "is in", "will be in")
    return TextTable("Tables that the same jobs read, the largest communities", heads, rows, frozenset({1, 2, 3}))


def _places(shares: object) -> str:
    """The two regions with most of it."""
    return ", ".join(f"{one['region']} {_number(one['share'], '.0%')}" for one in _objects(shares)[:2])


def _objects(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list | tuple) else []


def _number(value: object, form: str, otherwise: str = "") -> str:
    return format(value, form) if isinstance(value, int | float) else otherwise
