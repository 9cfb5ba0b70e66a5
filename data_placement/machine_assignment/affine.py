"""Sums of variables and a number, as rows of a program are written from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from domain.warehouse import Floats


@dataclass(slots=True)
class Affine:
    """A weighted sum of variables, by column, and a number."""

    terms: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0

    def add(self, other: Affine, weight: float = 1.0) -> None:
        """Adds so many times the other."""
        for column, factor in other.terms.items():
            self.terms[column] = self.terms.get(column, 0.0) + weight * factor
        self.constant += weight * other.constant

    def value(self, values: Floats) -> float:
        """What it is where the variables have these values."""
        return self.constant + sum(factor * float(values[column]) for column, factor in self.terms.items())


def variable(column: int) -> Affine:
    """The variable alone."""
    return Affine({column: 1.0})


def total(parts: Iterable[Affine]) -> Affine:
    """The sum of all."""
    whole = Affine()
    for part in parts:
        whole.add(part)
    return whole
