"""Hands the moves of a reviewed plan to the migrations."""

from __future__ import annotations

from collections.abc import Mapping

from data_placement.migrations.deadlines import planned_deadline_s
from data_placement.move_kinds import COPY, HOME_KEEPING_COPY
from domain.identifiers import RegionId, TableId
from domain.table_partitions import TablePartitions
from services.data_placement.migration_store import WantedMigration, enqueue
from services.database import plan_store
from services.database.connection import AnyConnection
from services.database.partition_copy_store import load_table_partitions
from services.database.plan_store import PlanState, StoredMove, StoredPlan
from services.grpc_errors import NotFound, PreconditionFailed
from topmast.v1 import data_placement_pb2 as messages

_AT_ONCE = 500
"""Enqueuing so many takes some milliseconds of the loop."""
_NOTHING_MOVES = (
    "plan {} would move nothing: scheduler.yaml says neither where regions store tables (data.regions) nor that copies are"
    " emulated (data.emulated: true); set one of them, and start the service again"
)


async def apply_plan(
    connection: AnyConnection, plan: int | None, now_s: float, *, tables_move: bool
) -> messages.ApplyPlacementPlanResponse:
    """All its moves are wanted from now on, in one transaction. Of a plan that was applied before nothing is done again: the
    answer is what it was then, for whoever has lost it.

    `tables_move`: whether the service has anything to move tables with. Raises NotFound, and PreconditionFailed for a plan
    that does not wait for review, or whose moves nobody would carry out.
    """
    stored = await plan_store.load_plan(connection, plan)
    if stored is None:
        raise no_such_plan(plan)
    if stored.state is PlanState.READY and not tables_move:
        raise PreconditionFailed("DATA_STORAGE", "data.regions", _NOTHING_MOVES.format(stored.plan))
    if not await plan_store.mark_applied(connection, stored.plan, now_s):
        return _same_answer(await plan_store.load_plan(connection, stored.plan) or stored)
    moves, size, passed_over, position = 0, 0, 0, -1
    while found := await plan_store.load_moves(connection, stored.plan, position, _AT_ONCE):
        position = found[-1].position
        parts = await load_table_partitions(
            connection, [TableId(move.table) for move in found if move.newest_share is not None]
        )
        wanted = [_wanted(stored.plan, move, parts.get(TableId(move.table)), now_s) for move in found]
        done = await enqueue(connection, wanted, now_s)
        moves += len(done.numbers)
        size += done.bytes
        passed_over += len(done.passed_over)
    answer = {"moves": moves, "bytes": size, "passed_over": passed_over}
    await plan_store.record_applied(connection, stored.plan, answer)
    return _answer(stored.plan, now_s, answer)


def _same_answer(stored: StoredPlan) -> messages.ApplyPlacementPlanResponse:
    """Raises PreconditionFailed for a plan that was not applied, or by a version that kept no answer."""
    if stored.state is not PlanState.APPLIED or stored.applied is None or stored.applied_s is None:
        raise PreconditionFailed("PLAN_STATE", f"plan {stored.plan}", _why_not(stored.plan, stored.state))
    return _answer(stored.plan, stored.applied_s, stored.applied)


def _answer(plan: int, applied_s: float, answer: Mapping[str, object]) -> messages.ApplyPlacementPlanResponse:
    return messages.ApplyPlacementPlanResponse(plan=plan, applied_s=applied_s, **answer)  # type: ignore[arg-type]  # fields by name


def _wanted(plan: int, move: StoredMove, parts: TablePartitions | None, now_s: float) -> WantedMigration:
    newest = None if move.newest_share is None or parts is None else parts.newest_of_share(move.newest_share)
    return WantedMigration(
        TableId(move.table),
        RegionId(move.target),
        leaves=None if move.kind == COPY else RegionId(move.source),
        priority=0 if move.priority is None else move.priority,
        deadline_s=planned_deadline_s(move.priority, now_s),
        plan=plan,
        newest_partitions=newest,
        keeps_old_copy=move.kind == HOME_KEEPING_COPY,
    )


def _why_not(plan: int, state: PlanState) -> str:
    match state:
        case PlanState.RUNNING:
            return f"plan {plan} is still being made; wait until it is ready"
        case PlanState.APPLIED:
            return f"plan {plan} was applied before"
        case PlanState.SUPERSEDED:
            return f"there is a newer plan than {plan}; look at it with `topmast data plan --live`"
        case PlanState.FAILED | PlanState.READY:
            return f"plan {plan} could not be made; make another one"


def no_such_plan(plan: int | None) -> NotFound:
    """For a plan by its number, or for the newest one where none was made."""
    if plan is None:
        return NotFound("plan", "", "topmast data plan --live makes one")
    return NotFound("plan", str(plan))
