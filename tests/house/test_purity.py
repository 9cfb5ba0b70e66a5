"""Functional core: each rule holds in every module of the core, and each rule is shown to bite."""

import ast
import textwrap

import pytest

from tests.house import purity_rules
from tests.house.purity_rules import Rule
from tests.house.repository import CORE_PACKAGES, DECISION_PACKAGES, python_files, tree

_RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (purity_rules.frozen_slotted, ("domain",)),
    (purity_rules.no_any, CORE_PACKAGES),
    (purity_rules.no_endless_caches, CORE_PACKAGES),
    (purity_rules.no_clock_parameters, CORE_PACKAGES),
    (purity_rules.no_files, DECISION_PACKAGES),
    (purity_rules.no_generators_made, (*DECISION_PACKAGES, "formats")),
    (purity_rules.no_module_state, CORE_PACKAGES),
    (purity_rules.no_set_order, CORE_PACKAGES),
    (purity_rules.no_unseeded_generators, CORE_PACKAGES),
)


@pytest.mark.parametrize(("rule", "packages"), _RULES, ids=[rule.__name__ for rule, _ in _RULES])
def test_the_core_keeps(rule: Rule, packages: tuple[str, ...]) -> None:
    modules = python_files(packages)
    assert {path.parts[0] for path in modules} == set(packages), "a package of the core has no modules"
    found = [f"{path}:{line}: {sentence}" for path in modules for line, sentence in rule(tree(path))]
    assert not found, "\n" + "\n".join(found)


_BAD = (
    (purity_rules.frozen_slotted, "@dataclass\nclass Plan: ..."),
    (purity_rules.frozen_slotted, "@dataclasses.dataclass(frozen=True)\nclass Plan: ..."),
    (purity_rules.no_any, "from typing import Any"),
    (purity_rules.no_any, "import typing\nvalue: typing.Any = 1"),
    (purity_rules.no_endless_caches, "@lru_cache(maxsize=None)\ndef plan(view): ..."),
    (purity_rules.no_endless_caches, "class View:\n    @functools.cached_property\n    def total(self): ..."),
    (purity_rules.no_clock_parameters, "def plan(view, clock): ..."),
    (purity_rules.no_clock_parameters, "def plan(view, *, when: Clock | None = None): ..."),
    (purity_rules.no_clock_parameters, "def plan(view, now: datetime): ..."),
    (purity_rules.no_files, "def plan(path):\n    return open(path).read()"),
    (purity_rules.no_files, "from pathlib import Path"),
    (purity_rules.no_generators_made, "generator = np.random.default_rng(7)"),
    (purity_rules.no_module_state, "_SEEN = {}"),
    (purity_rules.no_module_state, "_SEEN: dict[str, int] = collections.defaultdict(int)"),
    (purity_rules.no_module_state, "def plan(view):\n    global last\n    last = view"),
    (purity_rules.no_set_order, "for machine in set(machines):\n    place(machine)"),
    (purity_rules.no_set_order, "order = [machine for machine in used.keys() | free.keys()]"),
    (purity_rules.no_set_order, "first = next(iter({1, 2}))"),
    (purity_rules.no_set_order, "order = tuple(frozenset(machines))"),
    (purity_rules.no_set_order, "total = sum(load[machine] for machine in racks.union(spare))"),
    (purity_rules.no_unseeded_generators, "generator = default_rng()"),
)


@pytest.mark.parametrize(("rule", "source"), _BAD, ids=[f"{rule.__name__}-{i}" for i, (rule, _) in enumerate(_BAD)])
def test_a_rule_notices(rule: Rule, source: str) -> None:
    assert list(rule(ast.parse(source))) != []


def test_every_rule_is_shown_to_bite() -> None:
    assert {rule for rule, _ in _BAD} == {rule for rule, _ in _RULES}


def test_good_code_passes_every_rule() -> None:
    source = """
        import numpy as np

        LIMITS = MappingProxyType({"gpus": 8})
        __all__ = ["decide"]

        @lru_cache(maxsize=4096)
        def indices_of(bits: int) -> tuple[int, ...]:
            return tuple(index for index in range(bits.bit_length()) if bits >> index & 1)

        @dataclass(frozen=True, slots=True)
        class Decision:
            machines: tuple[str, ...]

        def decide(view: View, now: float, generator: np.random.Generator) -> Decision:
            ready = {machine for machine in view.machines if machine.ready_s <= now}
            seen = any(machine.lost for machine in ready | view.lost)
            for machine in sorted(ready, key=lambda machine: machine.id):
                place(machine, seen)
            return Decision(tuple(sorted(ready)))
    """
    module = ast.parse(textwrap.dedent(source))
    assert [finding for rule, _ in _RULES for finding in rule(module)] == []
