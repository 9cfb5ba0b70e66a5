"""Has something done on the machines of Ray nodes, beside what runs there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ray
import structlog
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MACHINE_PREFIX = "machine:"
"""Of the resources by which a node offers machines of the fleet."""

LONGEST_ANSWER_S = 45.0

AnswerT = TypeVar("AnswerT")

_log = structlog.get_logger(__name__)


def answers_of_nodes(
    concerns: Callable[[frozenset[str]], bool], function: Callable[..., AnswerT], *arguments: object
) -> list[AnswerT]:
    """What the function answers on every living node with machines whose resources are so, in the order of their ids; on the node of this
    process it is called in this process. Nodes that fail or do not answer in time are left out, with a warning. Waits."""
    try:
        nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray's own
        own = ray.get_runtime_context().get_node_id()
    except RayError as error:
        _log.warning("Ray does not say which nodes live", error=str(error))
        return []
    concerned = sorted(node["NodeID"] for node in nodes if node["Alive"] and _is_asked(node["Resources"], concerns))
    elsewhere = [(node, _ask(node, function, arguments)) for node in concerned if node != own]
    answers: list[AnswerT] = []
    if own in concerned:
        try:
            answers.append(function(*arguments))
        except Exception as error:  # noqa: BLE001  # as of those elsewhere, whatever it is
            _log.warning("this node does not do what it is asked", asked=function.__name__, error=str(error))
    for node, asked in elsewhere:
        try:
            answers.append(ray.get(asked, timeout=LONGEST_ANSWER_S))
        except RayError as error:
            _log.warning("a node does not do what it is asked", node=node, asked=function.__name__, error=str(error))
            ray.cancel(asked, force=True)
    return answers


def _is_asked(resources: dict[str, float], concerns: Callable[[frozenset[str]], bool]) -> bool:
    offered = frozenset(resource for resource in resources if resource.startswith(MACHINE_PREFIX))
    return bool(offered) and concerns(offered)


def _ask(node: str, function: Callable[..., AnswerT], arguments: tuple[object, ...]) -> Any:
    where = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote(*arguments)
