"""Rounds, responses and outcomes of auctions as JSON documents, both ways.

A stored lot names its workload only; the specification stays in the workloads table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from domain.identifiers import AttemptNumber, ClusterId, RegionId, WorkloadId
from domain.placement import NO_WORK_DESTROYED, Score
from domain.rank import QueuePosition, Standing
from domain.workload import Workload
from regional_scheduler.auction import AwaitingData, RoundOutcome, Verdict, Waiting, Won
from regional_scheduler.idle_outline import IdleMachines
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.rounds import Abandoned, Answer, Bid, Lot, NoPlan, PlanSummary, RegionResponse
from services.database.diagnosis_documents import diagnosis_from_document

Document = dict[str, Any]


def lot_document(lot: Lot) -> Document:
    """A lot without its specification."""
    position = lot.position
    return {
        "workload": position.workload,
        "attempt": lot.attempt,
        "priority": position.standing.priority,
        "level": position.standing.level,
        "credit": position.credit,
        "submitted_s": position.submitted_s,
        "within_quota": position.within_quota,
        "expected_winner": lot.expected_winner,
        "kind": lot.kind,
    }


def lot_from_document(document: Mapping[str, Any], workload: Workload) -> Lot:
    """The lot, with its workload as the workloads table has it."""
    expected_winner = document["expected_winner"]
    kind = document.get("kind")  # rounds of before it was stored have none
    return Lot(
        workload,
        position_from_document(document),
        AttemptNumber(document["attempt"]),
        None if expected_winner is None else RegionId(expected_winner),
        kind=None if kind is None else WorkloadKind(kind),
    )


def position_from_document(document: Mapping[str, Any]) -> QueuePosition:
    return QueuePosition(
        WorkloadId(document["workload"]),
        Standing(document["priority"], document["level"]),
        document["credit"],
        document["submitted_s"],
        document["within_quota"],
    )


def response_document(response: RegionResponse) -> Document:
    """A region's answers to a round."""
    return {
        "answered_s": response.answered_s,
        "answers": [_answer_document(answer) for answer in response.answers],
        "assumed_wins": list(response.assumed_wins),
        "gpus": response.gpus,
        "cpus": response.cpus,
        "idle": [list(astuple(idle)) for idle in response.idle],
        "tenants_apart": response.tenants_apart,
        "alike": list(response.alike),
    }


def response_from_document(round_number: int, region: RegionId, document: Mapping[str, Any]) -> RegionResponse:
    return RegionResponse(
        round_number,
        region,
        document["answered_s"],
        tuple(_answer_from_document(answer) for answer in document["answers"]),
        tuple(WorkloadId(workload) for workload in document["assumed_wins"]),
        document["gpus"],
        document["cpus"],
        tuple(IdleMachines(*idle) for idle in document["idle"]),
        # Responses of before these were stored say nothing of them.
        document.get("tenants_apart", True),
        tuple(document.get("alike", ())),
    )


def score_document(score: Score) -> list[Any]:
    """The fields in their order."""
    return list(score)


def score_from_document(document: Sequence[Any]) -> Score:
    if len(document) < len(Score._fields):
        # An answer of before this was counted.
        document = [document[0], NO_WORK_DESTROYED, *document[1:]]
    reclaim_class, work_destroyed_by_priority, preempted_by_priority, *rest = document
    return Score(reclaim_class, tuple(work_destroyed_by_priority), tuple(preempted_by_priority), *rest)


def _answer_document(answer: Answer) -> Document:
    match answer:
        case Abandoned():
            return {"abandoned": answer.diagnosis.as_json(), "sentence": answer.sentence}
        case NoPlan():
            return {
                "no_plan": answer.diagnosis.as_json(),
                "sentence": answer.sentence,
                "assumes_wins": answer.assumes_wins,
            }
        case Bid():
            summary = answer.summary
            return {
                "bid": score_document(answer.score),
                "clusters": list(summary.clusters),
                "machines": summary.machines,
                "evictions": summary.evictions,
            }


def _answer_from_document(document: Mapping[str, Any]) -> Answer:
    if "bid" in document:
        clusters = tuple(ClusterId(cluster) for cluster in document["clusters"])
        summary = PlanSummary(clusters, document["machines"], document["evictions"])
        return Bid(score_from_document(document["bid"]), summary)
    if "no_plan" in document:
        return NoPlan(diagnosis_from_document(document["no_plan"]), document["sentence"], document["assumes_wins"])
    return Abandoned(diagnosis_from_document(document["abandoned"]), document["sentence"])


def outcome_document(outcome: RoundOutcome, next_window: int) -> Document:
    """What the next round needs to know, and what a person wants to: verdicts in one sentence each."""
    return {
        "verdicts": [_verdict_document(verdict) for verdict in outcome.verdicts],
        "carried_over": len(outcome.carried_over),
        "hints": dict(sorted(outcome.hints().items())),
        "hints_of_kinds": dict(sorted(outcome.hints_of_kinds().items())),
        "next_window": next_window,
        "runs_alone": outcome.runs_alone,
        "cursor": None if outcome.cursor is None else list(outcome.cursor.sort_key),
        "exhausted": outcome.exhausted,
        "absent": list(outcome.absent),
    }


def _verdict_document(verdict: Verdict) -> Document:
    document: Document = {"workload": verdict.lot.workload.workload, "sentence": verdict.sentence}
    match verdict:
        case Won():
            return document | {"verdict": "won", "reason": verdict.reason.value, "winner": verdict.winner}
        case Waiting():
            return document | {"verdict": "waiting", "diagnosis": verdict.diagnosis.as_json()}
        case AwaitingData():
            return document | {"verdict": "awaiting_data", "diagnosis": verdict.diagnosis.as_json()}
