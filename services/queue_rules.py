"""From the names in scheduler.yaml to the rules of the queue: which policies a service can follow, and why not others.

The policies are those of the registry that simulations use too. A service follows the ordering and the levels of a
policy; where a policy decides otherwise than the service on anything else, it is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cluster_manager.tuning.packing_order import PACKING_ORDERS
from domain.eviction import EvictionRule, VictimChoice
from domain.tenant import LOWEST_PRIORITY
from formats.problems import FieldProblem, FormatError, suggestion
from formats.scheduler_file import NO_LEVELS, LevelsSection, PrioritySection
from global_scheduler.knowledge import Knowledge
from global_scheduler.level_parameters import ParameterRefused, given_parameters, with_parameters
from global_scheduler.levels import LEVELS
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering import ORDERINGS
from global_scheduler.ordering.policy import OrderingPolicy
from global_scheduler.scan_settings import QueueRule

if TYPE_CHECKING:
    from simulator.policies.policy import Policy

_NOT_OURS = {
    "tuning": "it shares out CPUs and memory ({name}), which is not a matter of the queue but of 'tuning' in scheduler.yaml",
    "allocation": "it has a rule of its own for which of the queue start ({name}), but a service puts the whole queue up"
    " for auction, in order",
    "placement": "it cuts workloads into tasks ({name}), but the users of a service say themselves how many they want",
    "region_choice": "it binds workloads to a region at submission ({name}), but in a service the auctions choose the"
    " region",
    "reclaiming": "it chooses which loaned machines go back ({name}), which is not a matter of the queue but of"
    " inference.reclaiming in fleet.yaml",
    "elastic": "it resizes what runs ({name}), which is not a matter of the queue but of 'elastic' in scheduler.yaml",
}
"""By the point of the policy: why a service cannot follow it."""


_OURS_TOO = {"placement": "by_skew"}
"""What a service does by itself: whatever tasks users want, it consolidates those of high skew (`placement` in scheduler.yaml)."""


class _Refused(Exception):
    """A section cannot be followed. `field` is a path within the section."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(description)
        self.problem = FieldProblem(field, description)


def queue_rules(
    priorities: Mapping[int, PrioritySection], *, estimated: bool, source: str = "scheduler.yaml"
) -> tuple[QueueRule, ...]:
    """The rule of each priority from 0 on; raises FormatError with every problem."""
    rules, problems = [], []
    for priority in range(LOWEST_PRIORITY + 1):
        section = priorities.get(priority)
        try:
            rules.append(QueueRule() if section is None else _rule_of(section, estimated=estimated))
        except _Refused as refused:
            problem = refused.problem
            problems.append(FieldProblem(f"priorities[{priority}].{problem.field}", problem.description))
    if problems:
        raise FormatError(source, problems)
    return tuple(rules)


def bounds_of_policies(priorities: Mapping[int, PrioritySection]) -> EvictionRule:
    """How far the policies of these priorities want evictions bounded: what satisfies all of them.

    Of the attempts of one standing those leave of which the least work is lost, unless policies are named that all want it as
    MAST has published it.
    """
    wanted = [policy.eviction for policy in _policies_named({section.ordering for section in priorities.values()})]
    limits = [rule.evictions_per_workload_and_hour for rule in wanted]
    return EvictionRule(
        max((rule.minimum_run_time_s for rule in wanted), default=0.0),
        min((limit for limit in limits if limit is not None), default=None),
        any(rule.spares_guaranteed for rule in wanted),
        VictimChoice.PUBLISHED
        if wanted and not any(rule.spares_work for rule in wanted)
        else VictimChoice.LEAST_WORK_DESTROYED,
    )


def why_not_live(policy: Policy) -> str | None:
    """Why a service cannot follow this policy; None: it can, perhaps on estimates."""
    ours = type(policy)("", "", policy.ordering)
    for point, why in _NOT_OURS.items():
        its = getattr(policy, point)
        if its is None or its.name == _OURS_TOO.get(point):
            continue
        if its != getattr(ours, point):
            return why.format(name=its.name)
    if policy.levels is not None and policy.levels.moves_with_time:
        return (
            f"the levels of all that wait change with every second under {policy.levels.name}, but a service stores"
            " levels; srsf has levels that stay"
        )
    return None


def needs_estimates(policy: Policy) -> bool:
    """Whether it needs to know how long workloads will run."""
    packing = None if policy.tuning is None else PACKING_ORDERS.get(policy.tuning.name)
    if packing is not None and packing.needs_run_times:
        return True
    return any(part is not None and part.needs is Knowledge.ORACLE for part in (policy.ordering, policy.levels))


def _rule_of(section: PrioritySection, *, estimated: bool) -> QueueRule:
    ordering, levels = _named(section.ordering)
    rule = _with_parameters(ordering, levels, section.levels)
    ordering, levels = rule.ordering, rule.levels
    if levels is not None and levels.moves_with_time:
        raise _Refused(
            "levels.rule" if section.levels.rule else "ordering",
            f"{levels.name} moves all that wait with every second, but a service stores levels; use the rule"
            " remaining_service (policy srsf), or none",
        )
    for field, part in (("ordering", ordering), ("levels", levels)):
        if part is not None and part.needs is Knowledge.ORACLE and not estimated:
            raise _Refused(
                field,
                f"{part.name} needs remaining_s, how long workloads will run, which only an oracle knows; set"
                " 'estimates: true' to estimate it, or use las, which goes by the service received",
            )
    return rule


def _policies_named(names: Iterable[str]) -> list[Policy]:
    """Those of them that are policies, not orderings alone."""
    others = sorted(name for name in names if name not in ORDERINGS)
    if not others:
        return []
    # Only here: a service without such names starts without the simulator's policies.
    from simulator.policies.registry import policies

    known = policies()
    return [known[name] for name in others if name in known]


def _named(name: str) -> tuple[OrderingPolicy, LevelPolicy | None]:
    """The ordering of that name, or ordering and levels of the policy of that name."""
    if name in ORDERINGS:
        return ORDERINGS[name], None
    # Only here: a service without such names starts without the simulator's policies.
    from simulator.policies.registry import policies

    known = policies()
    if name not in known:
        raise _Refused("ordering", f"there is no policy {name}; {suggestion(name, {*known, *ORDERINGS}, 'policy')}")
    policy = known[name]
    levels = policy.levels
    # Levels that cannot be stored may yet be replaced by others.
    why = why_not_live(dataclasses.replace(policy, levels=None))
    if why is not None:
        raise _Refused(
            "ordering",
            f"{name} can only be simulated: {why}; use one that is an order or a rule for levels, such as"
            f" {policy.ordering.name}",
        )
    return policy.ordering, levels


def _with_parameters(ordering: OrderingPolicy, levels: LevelPolicy | None, section: LevelsSection) -> QueueRule:
    """The rule that the section names, or that the policy has, with the section's parameters."""
    if section.rule == NO_LEVELS:
        levels = None
    elif section.rule is not None:
        if section.rule not in LEVELS:
            hint = suggestion(section.rule, {*LEVELS, NO_LEVELS}, "level rule")
            raise _Refused("levels.rule", f"there is no level rule {section.rule}; {hint}")
        levels = LEVELS[section.rule]
    try:
        return with_parameters(QueueRule(ordering, levels), given_parameters(section))
    except ParameterRefused as refused:
        raise _Refused(f"levels.{refused.field}", str(refused)) from refused
