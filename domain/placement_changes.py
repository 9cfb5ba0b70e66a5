"""What an attempt holds after it was resized or retuned, and whether it may come to hold that. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Retune, ScaleIn, ScaleOut, TaskName
from domain.workload import WorkloadSpecification


class ImpossibleAction(Exception):
    """The action makes no sense for this attempt as it is; nothing was changed."""

    def __init__(self, attempt: AttemptKey, sentence: str) -> None:
        self.attempt = attempt
        super().__init__(sentence)


class ChangeKind(StrEnum):
    """What a change of placements is called; the values are kinds of events."""

    RESIZED = "resized"
    TUNED = "tuned"


class LossCause(StrEnum):
    """Why an attempt goes on with fewer tasks although nobody has decided that."""

    TASK_LOST = "task_lost"
    """The process was killed, or what watched over it is gone."""
    MACHINE_LOST = "machine_lost"


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """A change that was decided and is being carried out: what it gives up is not free before it is carried out."""

    kind: ChangeKind
    before: tuple[TaskPlacement, ...]
    """What the attempt held when it was decided."""
    released: tuple[TaskPlacement, ...] = ()
    """Tasks as they were, that go or will hold less."""
    waits_for: tuple[AttemptKey, ...] = ()
    """Attempts that were leaving, or giving up something, on machines where this one gets more."""
    undoes: bool = False
    """It takes back a change that a cluster has refused."""
    lost: tuple[TaskName, ...] = ()
    """Tasks that are gone already, sorted: no change back has them again."""
    cause: LossCause | None = None
    """Why they are; None: the change was decided."""


def flexible_among(specification: WorkloadSpecification, names: Collection[TaskName]) -> bool:
    """Whether all of these tasks are flexible: the attempt can go on without them (Lyra §5.2)."""
    base = {job.name: job.tasks for job in specification.jobs}
    return all(name.task >= base.get(name.job, name.task + 1) for name in names)


def without_lost(
    placements: Sequence[TaskPlacement],
    change: PlacementChange | None,
    lost: Collection[TaskName],
    cause: LossCause | None,
    *,
    waits: bool = False,
) -> tuple[tuple[TaskPlacement, ...], PlacementChange]:
    """What an attempt goes on with that has lost flexible tasks, or gives them up without a cause, and the change to that.

    `placements` is what it was to hold. A change that is not carried out yet is taken up in the new one; of one that still
    waits for what it gets (`waits`) only what it gives up, for those that are left cannot wait.
    """
    wanted = kept(change.before, placements) if change is not None and waits else tuple(placements)
    after = tuple([placement for placement in wanted if name_of(placement) not in lost])
    # What is given up was there until then, and a change back may have it again.
    names = tuple(sorted(lost)) if cause is not None else ()
    if change is None:
        gone = tuple([placement for placement in placements if name_of(placement) in lost])
        return after, PlacementChange(ChangeKind.RESIZED, tuple(placements), gone, lost=names, cause=cause)
    released = {name_of(placement): placement for placement in grown(after, placements)}
    # Of a task that was to hold less already, that is what it held before.
    released |= {name_of(placement): placement for placement in change.released}
    return after, PlacementChange(
        ChangeKind.RESIZED,
        change.before,
        tuple(released.values()),
        () if waits else change.waits_for,
        change.undoes,
        tuple(sorted({*change.lost, *names})),
        cause or change.cause,
    )


def kept(before: Sequence[TaskPlacement], after: Sequence[TaskPlacement]) -> tuple[TaskPlacement, ...]:
    """What of the first is in the second, too."""
    given = {name_of(placement): placement for placement in after}
    found: list[TaskPlacement] = []
    for held in before:
        to_be = given.get(name_of(held))
        if to_be is not None:
            millicpus, mebibytes = min(held.millicpus, to_be.millicpus), min(held.mebibytes, to_be.mebibytes)
            found.append(held._replace(millicpus=millicpus, mebibytes=mebibytes))
    return tuple(found)


def change_of(
    action: ScaleIn | ScaleOut | Retune, before: Sequence[TaskPlacement], after: Sequence[TaskPlacement]
) -> PlacementChange:
    """The change that the action comes to; what it waits for is for the caller to say."""
    kept = {name_of(placement): placement for placement in after}
    released = [placement for placement in before if _gives_up(placement, kept.get(name_of(placement)))]
    kind = ChangeKind.TUNED if isinstance(action, Retune) else ChangeKind.RESIZED
    return PlacementChange(kind, tuple(before), tuple(released))


def undone(change: PlacementChange, after: Sequence[TaskPlacement]) -> PlacementChange:
    """The change back to what the attempt held before, as far as that is not lost; `after` is what it was to hold, and may
    hold in some clusters."""
    before = tuple([placement for placement in change.before if name_of(placement) not in change.lost])
    return PlacementChange(
        change.kind, before, released=grown(before, after), undoes=True, lost=change.lost, cause=change.cause
    )


def grown(before: Sequence[TaskPlacement], after: Sequence[TaskPlacement]) -> tuple[TaskPlacement, ...]:
    """Tasks of `after` that are new or hold more than before."""
    held = {name_of(placement): placement for placement in before}
    return tuple(placement for placement in after if _gives_up(placement, held.get(name_of(placement))))


def _gives_up(one: TaskPlacement, other: TaskPlacement | None) -> bool:
    """Whether the first holds anything that the second does not."""
    return other is None or one.millicpus > other.millicpus or one.mebibytes > other.mebibytes


def name_of(placement: TaskPlacement) -> TaskName:
    """Which task a placement is of."""
    return TaskName(placement.job, placement.task)


def placements_after(
    action: ScaleIn | ScaleOut | Retune, placements: Sequence[TaskPlacement]
) -> tuple[TaskPlacement, ...]:
    """What the attempt holds after the action, in the order in which it held it, what is added last.

    Raises ImpossibleAction for a task that is not there, or that is there already.
    """
    held = {name_of(placement): placement for placement in placements}
    match action:
        case ScaleIn(attempt, released):
            _check_held(attempt, released, held)
            return tuple(placement for name, placement in held.items() if name not in released)
        case ScaleOut(attempt, added):
            names = [name_of(placement) for placement in added]
            twice = next((name for name in names if name in held or names.count(name) > 1), None)
            if twice is not None:
                raise ImpossibleAction(attempt, f"task {twice.task} of job {twice.job} is placed already")
            return (*placements, *added)
        case Retune(attempt, amounts):
            _check_held(attempt, [amount.name for amount in amounts], held)
            for name, millicpus, mebibytes in amounts:
                held[name] = held[name]._replace(millicpus=millicpus, mebibytes=mebibytes)
            return tuple(held.values())


def _check_held(attempt: AttemptKey, names: Sequence[TaskName], held: dict[TaskName, TaskPlacement]) -> None:
    missing = next((name for name in names if name not in held), None)
    if missing is not None:
        raise ImpossibleAction(attempt, f"task {missing.task} of job {missing.job} is not placed")
    if len(set(names)) < len(names):
        raise ImpossibleAction(attempt, "the same task is named twice")


def check_gang(attempt: AttemptKey, specification: WorkloadSpecification, placements: Sequence[TaskPlacement]) -> None:
    """Raises ImpossibleAction unless all base tasks of all jobs are placed, and no job has more tasks than it may (I2).

    Every task must have the GPUs that it asked for, and some CPU and memory wherever it asked for more than none.
    """
    placed: dict[TaskName, TaskPlacement] = {}
    for placement in placements:
        name = name_of(placement)
        if name in placed:
            raise ImpossibleAction(attempt, f"task {name.task} of job {name.job} is placed twice")
        placed[name] = placement
    known = {job.name for job in specification.jobs}
    unknown = next((name.job for name in placed if name.job not in known), None)
    if unknown is not None:
        raise ImpossibleAction(attempt, f"{attempt.workload} has no job {unknown}")
    for job in specification.jobs:
        missing = next((task for task in range(job.tasks) if TaskName(job.name, task) not in placed), None)
        if missing is not None:
            raise ImpossibleAction(attempt, f"task {missing} of job {job.name} is a base task: it cannot be taken away")
        for name, placement in placed.items():
            if name.job != job.name:
                continue
            if not 0 <= name.task < job.greatest_tasks:
                bound = f"job {job.name} may have at most {job.greatest_tasks} tasks, numbered from 0"
                raise ImpossibleAction(attempt, f"{bound}: not task {name.task}")
            if len(placement.gpu_indices) != job.resources.gpus:
                need = f"task {name.task} of job {job.name} needs {job.resources.gpus} GPUs"
                raise ImpossibleAction(attempt, f"{need}, not {len(placement.gpu_indices)}")
            if placement.millicpus < 0 or placement.mebibytes < 0:
                raise ImpossibleAction(attempt, f"task {name.task} of job {job.name} cannot hold less than nothing")
