"""The parameters of levels as files say them, put into a rule of the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Protocol, TypeVar, cast

from formats.problems import suggestion
from formats.scheduler_file import LevelParameters
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering.policy import OrderingPolicy
from global_scheduler.scan_settings import QueueRule

_MAY_BE_NONE = frozenset({"promote_knob", "starve_limit_s"})
"""Of these null is a value: the parameter is switched off."""
_NO_PARAMETERS = frozenset({"name", "needs", "moves_with_time"})
_Part = TypeVar("_Part", LevelPolicy, OrderingPolicy)


class ParameterRefused(ValueError):
    """`field` is the name of the parameter."""

    def __init__(self, field: str, description: str) -> None:
        super().__init__(description)
        self.field = field


def given_parameters(section: LevelParameters) -> dict[str, object]:
    """What the section sets, by name; the others are as the policy has them."""
    given: dict[str, object] = {}
    for name in LevelParameters.model_fields:
        value = getattr(section, name)
        if value is not None or (name in _MAY_BE_NONE and name in section.model_fields_set):
            given[name] = tuple(value) if isinstance(value, list) else value
    return given


def with_parameters(rule: QueueRule, given: Mapping[str, object]) -> QueueRule:
    """The rule with these parameters of its levels; an ordering that goes by the same ones gets them, too.

    Raises ParameterRefused for what the levels do not know, and for what is not legal.
    """
    if not given:
        return rule
    if rule.levels is None:
        raise ParameterRefused(next(iter(given)), "is a parameter of levels, but there are none; name their rule, too")
    known = parameters_of(rule.levels)
    for name in given:
        if name not in known:
            hint = suggestion(name, known, "parameter")
            raise ParameterRefused(name, f"{rule.levels.name} has no such parameter; {hint}")
    return QueueRule(_changed(rule.ordering, given), _changed(rule.levels, given))


def with_known_parameters(rule: QueueRule, given: Mapping[str, object]) -> QueueRule:
    """The rule with those of the parameters that its levels know.

    Raises ParameterRefused for what is not legal.
    """
    known = parameters_of(rule.levels)
    return with_parameters(rule, {name: value for name, value in given.items() if name in known})


def parameters_of(part: object) -> frozenset[str]:
    """What can be set of a part of a rule; nothing of one that is no dataclass."""
    if not dataclasses.is_dataclass(part):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(part)) - _NO_PARAMETERS


def _changed(part: _Part, given: Mapping[str, object]) -> _Part:
    theirs = {name: value for name, value in given.items() if name in parameters_of(part)}
    if not theirs:
        return part
    try:
        return cast("_Part", dataclasses.replace(cast("_AnyDataclass", part), **theirs))
    except ValueError as error:
        # Messages begin with the parameter that they are about.
        field = next((name for name in theirs if str(error).startswith(name)), next(iter(theirs)))
        raise ParameterRefused(field, str(error)) from error


class _AnyDataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]
