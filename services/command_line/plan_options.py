"""The options of `topmast data plan` about copies beside the homes, and what they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

ReplicasOption: TypeAlias = Annotated[
    bool | None, typer.Option("--replicas/--no-replicas", help="Plan copies beside the homes.", show_default=False)
]
DisasterCopiesOption: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--disaster-copies/--no-disaster-copies", help="A copy of each table outside its home.", show_default=False
    ),
]
SpareHardwareOption: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--spare-hardware/--no-spare-hardware",
        help="Copies against disasters go where GPUs are to spare for the jobs that read them.",
        show_default=False,
    ),
]
HotShareOption: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--hot-share",
        min=0.0,
        max=1.0,
        help="Of the storage that is left, for copies of hot tables.",
        show_default=False,
    ),
]
PartitionCopiesOption: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--partition-copies/--no-partition-copies",
        help="Copies for jobs hold only the newest partitions, as many as they read.",
        show_default=False,
    ),
]
FailureOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--failure",
        metavar="REGION:OTHER=PROBABILITY",
        help="How likely the other region fails when the first does, from 0 to 1; may be repeated.",
        show_default=False,
    ),
]
SpareOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--spare",
        metavar="REGION=SHARE",
        help="The part of its GPU hours that a region keeps for the jobs of one that fails, from 0 to 1; may be repeated.",
        show_default=False,
    ),
]
BoundOption: TypeAlias = Annotated[
    bool | None,
    typer.Option("--bound/--no-bound", help="Prove how much better a placement could be at most.", show_default=False),
]


def failures_of(said: Sequence[str] | None) -> tuple[tuple[str, str, float], ...] | None:
    """Pairs of regions with a probability; None where nothing is said. Refuses what is no such thing."""
    if not said:
        return None
    found: list[tuple[str, str, float]] = []
    for one in said:
        pair, probability = _divided(one, "--failure", "east:west=0.2")
        region, colon, other = pair.partition(":")
        if not (region and colon and other):
            raise typer.BadParameter(f"'{one}' names no two regions; write east:west=0.2", param_hint="--failure")
        if region == other:
            raise typer.BadParameter(f"'{one}' names {region} twice; name two regions", param_hint="--failure")
        found.append((region, other, probability))
    if len({pair[:2] for pair in found}) < len(found):
        raise typer.BadParameter("a pair of regions is there twice; say it once", param_hint="--failure")
    return tuple(found)


def spare_shares_of(said: Sequence[str] | None) -> dict[str, float] | None:
    """Shares by region; None where nothing is said. Refuses what is no such thing."""
    if not said:
        return None
    found: dict[str, float] = {}
    for one in said:
        region, share = _divided(one, "--spare", "east=0.2")
        if region in found:
            raise typer.BadParameter(f"{region} is there twice; say it once", param_hint="--spare")
        found[region] = share
    return found


def _divided(said: str, option: str, example: str) -> tuple[str, float]:
    name, _, number = said.rpartition("=")
    try:
        share = float(number)
    except ValueError:
        share = -1.0
    if not name or not 0.0 <= share <= 1.0:
        raise typer.BadParameter(f"'{said}' has no name with a number from 0 to 1; write {example}", param_hint=option)
    return name, share
