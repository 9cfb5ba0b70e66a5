"""What the data placement service answers, as messages."""

from __future__ import annotations

import json
from collections.abc import Iterable

from google.protobuf.json_format import ParseDict

from services.database.community_store import StoredCommunity
from services.database.plan_store import StoredMove, StoredPlan
from services.database.table_reader import ReaderRecord, TableRecord
from topmast.v1 import data_placement_pb2 as messages


def table_message(record: TableRecord) -> messages.TableRecord:
    return messages.TableRecord(
        table=record.table,
        namespace=record.namespace,
        tenant=record.tenant or "",
        size_bytes=record.size_bytes,
        home=record.home,
        copies=[
            messages.TableCopy(
                region=copy.region,
                complete_until_s=copy.complete_until_s,
                partitions=copy.partitions,
                newest_partitions=copy.newest_partitions,
            )
            for copy in record.copies
        ],
        partitions=record.partitions,
        last_partition_s=record.last_partition_s,
    )


def community_message(stored: StoredCommunity) -> messages.TableCommunity:
    return ParseDict(dict(stored.described), messages.TableCommunity(plan=stored.plan))


def reader_message(reader: ReaderRecord) -> messages.TableReader:
    return messages.TableReader(
        reader=reader.name,
        kind="training" if reader.training else "analytics",
        gpu_model=reader.gpu_model,
        priority=reader.priority,
        gpu_hours=reader.gpu_hours,
        cpu_hours=reader.cpu_hours,
        other_tables=reader.other_tables,
        hint=reader.hint or "",
    )


def proposal_message(plan: int, move: StoredMove) -> messages.ProposedMove:
    return messages.ProposedMove(
        plan=plan,
        table=move.table,
        source=move.source,
        target=move.target,
        kind=move.kind,
        size_bytes=move.size_bytes,
        reason=move.reason,
        newest_share=move.newest_share,
    )


def plan_message(plan: StoredPlan, all_moves: int, moves: Iterable[StoredMove]) -> messages.PlacementPlan:
    return messages.PlacementPlan(
        plan=plan.plan,
        state=plan.state.value,
        asked_s=plan.asked_s,
        ended_s=plan.ended_s,
        applied_s=plan.applied_s,
        stage=plan.stage,
        done=plan.done,
        problem=plan.problem,
        figures="" if plan.figures is None else json.dumps(plan.figures),
        all_moves=all_moves,
        moves=[proposal_message(plan.plan, move) for move in moves],
    )
