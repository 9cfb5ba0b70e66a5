"""Workloads are chosen by their labels: `key=value`, `key!=value`, `key`, `!key`."""

from __future__ import annotations

from collections.abc import Sequence

from topmast.errors import InvalidArgumentError
from topmast.messages import message_of, refused, strings
from topmast.v1 import global_scheduler_pb2

_FORMS = "write key=value, key!=value, key or !key"


def label_condition(text: str) -> global_scheduler_pb2.LabelCondition:
    """What this says; `key!=value` is true also where there is no such label. Raises ValueError with a sentence,
    InvalidArgumentError for what is no text that can be sent."""
    key, equals, value = text.partition("=")
    if not equals:
        excludes = text.startswith("!")
        key = text.removeprefix("!")
        if not key or "!" in key:
            raise ValueError(f"{text!r} is no condition on a label; {_FORMS}")
        return message_of(global_scheduler_pb2.LabelCondition, key=key, excludes=excludes)
    excludes = key.endswith("!")
    key = key.removesuffix("!")
    if not key or "!" in key:
        raise ValueError(f"{text!r} is no condition on a label; {_FORMS}")
    # `key==value`, as others write it, is the same.
    value = value.removeprefix("=")
    return message_of(global_scheduler_pb2.LabelCondition, key=key, value=value, excludes=excludes)


def label_conditions(texts: Sequence[str]) -> list[global_scheduler_pb2.LabelCondition]:
    """All of them; a workload has to meet each. Raises InvalidArgumentError for what is none, and for one text instead of several."""
    conditions = []
    for index, text in enumerate(strings("labels", texts)):
        try:
            conditions.append(label_condition(text))
        except InvalidArgumentError as error:
            raise error.under(f"labels[{index}].") from None
        except ValueError as error:
            raise refused(f"labels[{index}]", str(error)) from None
    return conditions
