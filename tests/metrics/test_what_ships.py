"""Documents, dashboards and alerts speak of the metrics that there are, and of all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from services.metrics.service_metrics import ServiceMetrics
from tests.metrics.alert_rules import OBSERVABILITY, alert_rules

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
DASHBOARDS = sorted((OBSERVABILITY / "grafana" / "dashboards").glob("*.json"))
OF_PROMETHEUS = {"up", "process", "job", "instance"}

_ROW = re.compile(r"^\| `(topmast_\w+)` \|([\w, ]*)\|", re.MULTILINE)


def metrics() -> Mapping[str, tuple[str, ...]]:
    """The labels of each metric of a process, by the name that its samples have."""
    return {
        f"{one.name}_total" if one.type == "counter" else one.name: one.labels for one in ServiceMetrics().described()
    }


def test_every_metric_is_documented_with_its_labels() -> None:
    documented = {
        name: tuple(label.strip() for label in labels.split(",") if label.strip())
        for name, labels in _ROW.findall(OPERATIONS.read_text(encoding="utf-8"))
    }
    assert documented == metrics()


def test_every_alert_says_where_its_runbook_is_and_there_it_is() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    headings = re.findall(r"^#### (Topmast\w+)$", text, re.MULTILINE)
    assert headings == sorted(headings, key=list(alert_rules()).index)
    assert set(headings) == set(alert_rules())
    for name, rule in alert_rules().items():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"]


@pytest.mark.parametrize("name", list(alert_rules()))
def test_an_alert_asks_for_metrics_and_labels_that_there_are(name: str) -> None:
    check(str(alert_rules()[name]["expr"]))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_shows_metrics_that_there_are(dashboard: Path) -> None:
    document = json.loads(dashboard.read_text(encoding="utf-8"))
    targets = [(panel, target) for panel in document["panels"] for target in panel["targets"]]
    assert len(targets) > 10
    for panel, target in targets:
        labels = check(target["expr"])
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= labels | OF_PROMETHEUS, f"{panel['title']}: {target['legendFormat']} is not in {labels}"
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in document["panels"]]
    assert len(set(places)) == len(places), "panels lie on each other"


def test_the_dashboards_show_nearly_everything() -> None:
    shown = {
        name
        for dashboard in DASHBOARDS
        for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]
        for target in panel["targets"]
        for name, _ in selectors(promql.parse(target["expr"]))
    }
    missing = [name for name in metrics() if not any(base_of(one) == name for one in shown)]
    assert len(missing) <= 12, missing


def check(expression: str) -> set[str]:
    """The labels of all that it asks for; fails for what there is not."""
    known, labels = metrics(), set[str]()
    for name, asked in selectors(promql.parse(expression)):
        if name == "up" or name.startswith(("process_", "python_")):
            continue
        assert base_of(name) in known, f"{expression}: there is no {name}"
        labels.update(known[base_of(name)])
        assert asked <= set(known[base_of(name)]) | {"job"}, f"{expression}: {name} has no {asked}"
    return labels


def base_of(name: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", name)


def selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    """What is asked for anywhere in an expression: name, and labels by which it is chosen."""
    match node:
        case promql.VectorSelector():
            yield str(node.name), {matcher.name for matcher in node.matchers.matchers}
        case promql.MatrixSelector():
            yield from selectors(node.vector_selector)
        case promql.Call():
            for argument in node.args:
                yield from selectors(argument)
        case promql.BinaryExpr():
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case promql.AggregateExpr():
            yield from selectors(node.expr)
        case promql.ParenExpr():
            yield from selectors(node.expr)
        case _:
            assert isinstance(node, promql.NumberLiteral), f"{node}: not looked into"
