"""Options that were given with nothing behind them, as a shell does with a variable that is not set."""

from __future__ import annotations

import typer


def refuse_empty(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
    """The same; raises BadParameter when the option was given and is empty: it would do silently less than was meant."""
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source.name == "COMMANDLINE" and not value.strip():
        raise typer.BadParameter("is empty; say what it is to be, or leave the option out")
    return value
