"""What a command calls the fields of a request: an error about `jobs[0].resources.cpus` is about its option `--cpus`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

_CALLED_OTHERWISE: Mapping[str, tuple[str, ...]] = {
    "after_sequence": ("after",),
    "checkpoint_interval_s": ("emulate_s",),
    "duration_s": ("emulate_s",),
    "emulated": ("emulate_s",),
    "environment": ("env",),
    "events": ("event", "notify_on"),
    "labels": ("label",),
    "job": ("size",),
    "deadline_s": ("deadline",),
    "max_tasks": ("size",),
    "max_time_s": ("max_time",),
    "name_contains": ("name",),
    "never_on": ("no_retry_on",),
    "on_exit_codes": ("retry_on",),
    "page_size": ("limit",),
    "preferred": ("prefer_within",),
    "regions": ("region",),
    "states": ("state",),
    "submitted_after_s": ("submitted_after",),
    "submitted_before_s": ("submitted_before",),
    "table": ("fresh_table",),
    "tables": ("table", "fresh_table"),
    "tail_lines": ("tail",),
    "tasks": ("size",),
    "within": ("prefer_within",),
    "within_s": ("deadline",),
    "url": ("notify",),
    "workload": ("workloads",),
}
"""Parameters of commands for fields of other names. Where a command has several, the one that was given is meant."""

_is_component = re.compile(r"[A-Za-z_]\w*").match
_FUNCTION = re.compile(r"\bjobs\[\d+\]\.python\b")
"""What a job runs; `python` of its environment is an interpreter."""
_REST = re.compile(r"^(?:environment|labels)\.(.+)$")


def option_name(command: Callable[..., object], said: Mapping[str, object], field: str) -> str:
    """The option or argument of the command that a field of its request comes from; the field itself where there is none.

    `said` is what the command was called with.
    """
    names = _names_of(command)
    if _FUNCTION.search(field) and "function" in names:
        return names["function"]
    components = field.split(".")
    for index in range(len(components) - 1, -1, -1):
        found = _is_component(components[index])
        if found is None:
            continue
        candidates = [name for name in (found.group(), *_CALLED_OTHERWISE.get(found.group(), ())) if name in names]
        if candidates:
            chosen = next((name for name in candidates if said.get(name)), candidates[0])
            key = _REST.match(".".join(components[index:]))
            return f"{names[chosen]} {key.group(1)}" if key else names[chosen]
    return field


def _names_of(command: Callable[..., object]) -> dict[str, str]:
    """Parameter -> what users type for it."""
    names: dict[str, str] = {}
    for parameter, hint in get_type_hints(command, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        described: Any = get_args(hint)[1]
        # In an annotation the first name stands where typer has a default otherwise.
        texts = [text for text in (described.default, *(described.param_decls or ())) if isinstance(text, str)]
        declared = [text.partition("/")[0] for text in texts if text.startswith("--")]
        metavar = (described.metavar or parameter.upper()).strip(" -.").removeprefix("[").removesuffix("]").strip(".")
        names[parameter] = declared[0] if declared else metavar
    return names
