"""Evaluates the PromQL of our alerts over a few scrapes; promql_parser reads it, as Prometheus does.

What alerts use is here, and everything else raises NotImplementedError. `increase`, `rate` and `delta` go from the first to the last
sample of their range and do not extrapolate: scrapes of a test lie where they are wanted.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import promql_parser as promql
from prometheus_client import CollectorRegistry, Metric

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Value = float | Vector

_STALE_AFTER_S = 300.0
"""A scrape that is older says nothing of now."""

_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_COMBINATIONS: Mapping[str, Callable[[list[float]], float]] = {"sum": math.fsum, "max": max, "min": min}
_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda one, other: one / other if other else math.nan,
}


@dataclass(slots=True)
class Scrapes:
    """What Prometheus would have: samples by name and labels, in the order of their times."""

    samples: dict[str, dict[Labels, list[tuple[float, float]]]] = field(default_factory=dict)
    scraped_s: list[float] = field(default_factory=list)

    def scrape(self, registry: CollectorRegistry, at_s: float) -> None:
        """Reads a registry as of then, and that it could be read."""
        self.add(registry.collect(), at_s)
        self.answered(at_s)

    def answered(self, at_s: float) -> None:
        """What was scraped then had been answered."""
        self._add("up", frozenset({("job", "topmast")}), at_s, 1.0)

    def add(self, families: Iterable[Metric], at_s: float) -> None:
        self.scraped_s.append(at_s)
        for family in families:
            for sample in family.samples:
                self._add(sample.name, frozenset(sample.labels.items()), at_s, sample.value)

    def fail(self, at_s: float) -> None:
        """A scrape that was not answered."""
        self.scraped_s.append(at_s)
        self._add("up", frozenset({("job", "topmast")}), at_s, 0.0)

    def _add(self, name: str, labels: Labels, at_s: float, value: float) -> None:
        self.samples.setdefault(name, {}).setdefault(labels, []).append((at_s, value))

    def now(self, name: str, at_s: float) -> Vector:
        """The newest sample of each series that the newest scrape still had."""
        scraped = [scraped_s for scraped_s in self.scraped_s if scraped_s <= at_s]
        newest_s = max(scraped, default=-math.inf)
        if at_s - newest_s > _STALE_AFTER_S:
            return {}
        series = self.samples.get(name, {})
        found = {labels: [value for t, value in samples if t == newest_s] for labels, samples in series.items()}
        return {labels: values[-1] for labels, values in found.items() if values}

    def within(self, name: str, at_s: float, range_s: float) -> dict[Labels, list[float]]:
        series = self.samples.get(name, {})
        return {
            labels: [value for t, value in samples if at_s - range_s <= t <= at_s] for labels, samples in series.items()
        }


def evaluate(expression: str, scrapes: Scrapes, at_s: float) -> Vector:
    """The vector that the expression comes to then: what an alert fires for."""
    value = _Evaluation(scrapes, at_s).value(promql.parse(expression))
    if not isinstance(value, dict):
        raise NotImplementedError(f"{expression} is a number and no vector")
    return value


@dataclass(frozen=True, slots=True)
class _Evaluation:
    scrapes: Scrapes
    at_s: float

    def value(self, node: promql.Expr) -> Value:
        match node:
            case promql.NumberLiteral():
                return float(node.val)
            case promql.ParenExpr():
                return self.value(node.expr)
            case promql.VectorSelector():
                return _matching(self.scrapes.now(str(node.name), self.at_s), node)
            case promql.Call():
                return self._call(node)
            case promql.AggregateExpr():
                return self._aggregate(node)
            case promql.BinaryExpr():
                return self._binary(node)
            case _:
                raise NotImplementedError(f"{node} in an alert")

    def _vector(self, node: promql.Expr) -> Vector:
        value = self.value(node)
        if not isinstance(value, dict):
            raise NotImplementedError(f"{node} is a number")
        return value

    def _call(self, call: promql.Call) -> Value:
        match call.func.name:
            case "time":
                return self.at_s
            case "absent":
                return {} if self._vector(call.args[0]) else {frozenset(): 1.0}
            case "increase" | "rate" | "delta" as name:
                matrix = call.args[0]
                range_s = matrix.range.total_seconds()
                series = self.scrapes.within(str(matrix.vector_selector.name), self.at_s, range_s)
                changed = {labels: _change(name, values) for labels, values in series.items() if len(values) > 1}
                divisor = range_s if name == "rate" else 1.0
                vector = _matching(changed, matrix.vector_selector)
                return {labels: value / divisor for labels, value in vector.items()}
            case "changes":
                matrix = call.args[0]
                within = self.scrapes.within(str(matrix.vector_selector.name), self.at_s, matrix.range.total_seconds())
                changes = {labels: float(_changes(values)) for labels, values in within.items() if values}
                return _matching(changes, matrix.vector_selector)
            case "histogram_quantile":
                share = self.value(call.args[0])
                if isinstance(share, dict):
                    raise NotImplementedError("a quantile that is a vector")
                return _quantiles(share, self._vector(call.args[1]))
            case name:
                raise NotImplementedError(f"the function {name} in an alert")

    def _aggregate(self, node: promql.AggregateExpr) -> Vector:
        combine = _COMBINATIONS[str(node.op)]
        kept = set() if node.modifier is None else set(node.modifier.labels)
        if node.modifier is not None and node.modifier.type != promql.AggModifierType.By:
            raise NotImplementedError("an aggregation without some labels")
        groups: dict[Labels, list[float]] = defaultdict(list)
        for labels, value in self._vector(node.expr).items():
            groups[frozenset(label for label in labels if label[0] in kept)].append(value)
        return {labels: combine(values) for labels, values in groups.items()}

    def _binary(self, node: promql.BinaryExpr) -> Value:
        left, right, sign = self.value(node.lhs), self.value(node.rhs), str(node.op)
        if sign == "and":
            matching = node.modifier.matching if node.modifier is not None else None
            if matching is None or matching.labels or not isinstance(left, dict) or not isinstance(right, dict):
                raise NotImplementedError("`and` without `on()`")
            return left if right else {}
        if sign in _COMPARISONS:
            if not isinstance(left, dict) or isinstance(right, dict):
                raise NotImplementedError("a comparison of anything but a vector with a number")
            return {labels: value for labels, value in left.items() if _COMPARISONS[sign](value, right)}
        return _arithmetic(_ARITHMETIC[sign], left, right)


def _arithmetic(compute: Callable[[float, float], float], left: Value, right: Value) -> Value:
    if isinstance(left, dict) and isinstance(right, dict):
        return {labels: compute(value, right[labels]) for labels, value in left.items() if labels in right}
    if isinstance(left, dict):
        return {labels: compute(value, right) for labels, value in left.items() if not isinstance(right, dict)}
    if isinstance(right, dict):
        return {labels: compute(left, value) for labels, value in right.items()}
    return compute(left, right)


def _matching(vector: Vector, selector: promql.VectorSelector) -> Vector:
    matchers = selector.matchers.matchers
    return {labels: value for labels, value in vector.items() if all(_matches(dict(labels), one) for one in matchers)}


def _matches(labels: Mapping[str, str], matcher: promql.Matcher) -> bool:
    value = labels.get(matcher.name, "")
    match matcher.op:
        case promql.MatchOp.Equal:
            return bool(value == matcher.value)
        case promql.MatchOp.NotEqual:
            return bool(value != matcher.value)
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
        case _:
            return re.fullmatch(matcher.value, value) is None


def _changes(values: list[float]) -> int:
    """How often it was another one than before."""
    return sum(one != other for one, other in pairwise(values))


def _change(function: str, values: list[float]) -> float:
    if function == "delta":
        return values[-1] - values[0]
    # A counter that has fallen has begun anew.
    return sum(later - earlier if later >= earlier else later for earlier, later in pairwise(values))


def _quantiles(share: float, buckets: Vector) -> Vector:
    """As Prometheus has it: linear within a bucket, and the greatest bound where it lies beyond."""
    series: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    for labels, count in buckets.items():
        named = dict(labels)
        series[frozenset((name, value) for name, value in labels if name != "le")].append((float(named["le"]), count))
    found: Vector = {}
    for labels, counts in series.items():
        counts.sort()
        rank = share * counts[-1][1]
        if counts[-1][1] == 0:
            continue
        place = next(number for number, (_, count) in enumerate(counts) if count >= rank)
        if math.isinf(counts[place][0]):
            found[labels] = counts[place - 1][0]
            continue
        bound, count = counts[place]
        below_bound, below = counts[place - 1] if place else (0.0, 0.0)
        found[labels] = below_bound + (bound - below_bound) * (rank - below) / (count - below)
    return found
