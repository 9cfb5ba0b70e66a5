"""Models that are drawn for rows without one, by a split of image, language and speech models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from domain.identifiers import TenantId, WorkloadId
from formats.problems import FormatError
from formats.trace import TraceRow
from simulator.inputs.models import MODELS_OF_TASKS, ModelSplit, assign_models

ALL = {model for models in MODELS_OF_TASKS.values() for model in models}
ROWS = [TraceRow(WorkloadId(f"w{number}"), TenantId("t"), float(number), 60.0, 1) for number in range(4000)]


def shares(split: str) -> dict[str, float]:
    rows = assign_models(ROWS, ModelSplit.parse(split), ALL, np.random.default_rng(1))
    counts = Counter(row.model for row in rows)
    return {task: sum(counts[model] for model in models) / len(rows) for task, models in MODELS_OF_TASKS.items()}


def test_tasks_have_the_shares_of_the_split() -> None:
    assert shares("20-70-10") == pytest.approx({"image": 0.2, "language": 0.7, "speech": 0.1}, abs=0.03)
    assert shares("50-0-50") == pytest.approx({"image": 0.5, "language": 0.0, "speech": 0.5}, abs=0.03)
    assert shares("0-100-0") == {"image": 0.0, "language": 1.0, "speech": 0.0}


def test_models_of_a_task_are_drawn_evenly() -> None:
    rows = assign_models(ROWS, ModelSplit(100, 0, 0), ALL, np.random.default_rng(2))
    counts = Counter(row.model for row in rows)
    assert set(counts) == set(MODELS_OF_TASKS["image"])
    assert min(counts.values()) > 700


def test_what_names_a_model_keeps_it_and_changes_no_other() -> None:
    named = [replace(ROWS[0], model="lstm"), replace(ROWS[1], gpus=0, cpus=1.0, memory_gib=1.0), *ROWS[2:]]
    split = ModelSplit.parse("30-60-10")
    plain = assign_models(ROWS, split, ALL, np.random.default_rng(3))
    mixed = assign_models(named, split, ALL, np.random.default_rng(3))
    assert [mixed[0].model, mixed[1].model] == ["lstm", ""]
    assert mixed[2:] == plain[2:]


def test_only_models_with_a_profile_are_drawn() -> None:
    rows = assign_models(ROWS, ModelSplit(0, 50, 50), {"m5", "gnmt"}, np.random.default_rng(4))
    assert {row.model for row in rows} == {"m5", "gnmt"}
    with pytest.raises(FormatError, match="wants image models"):
        assign_models(ROWS, ModelSplit(1, 49, 50), {"m5", "gnmt"}, np.random.default_rng(4))


@pytest.mark.parametrize(
    ("text", "says"), [("20-70", "is no split"), ("a-b-c", "is no split"), ("50-50-50", "adds up to 150")]
)
def test_a_bad_split_is_refused(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        ModelSplit.parse(text)
