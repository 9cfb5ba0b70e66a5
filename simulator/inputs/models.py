"""Models for traces that name none: drawn by the split of a workload into image, language and speech models (Synergy §5.1).

A split such as 20-70-10 says which percentage of the jobs is of each of the three, in this order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from formats.problems import FieldProblem, FormatError
from formats.trace import TraceRow

MODELS_OF_TASKS = MappingProxyType(
    {
        "image": ("shufflenet", "alexnet", "res18", "mobilenet", "res50"),
        "language": ("gnmt", "lstm", "transformer"),
        "speech": ("m5", "deepspeech"),
    }
)
"""Synergy's Table 4, by the names of its simulator."""


@dataclass(frozen=True, slots=True)
class ModelSplit:
    """Which share of the jobs trains image, language and speech models; in percent, 100 together."""

    image: int
    language: int
    speech: int

    def __str__(self) -> str:
        return f"{self.image}-{self.language}-{self.speech}"

    @staticmethod
    def parse(text: str) -> ModelSplit:
        """Of `20-70-10`. Raises FormatError."""
        if not re.fullmatch(r"\d{1,3}-\d{1,3}-\d{1,3}", text):
            described = (
                f"{text} is no split; write the percentages of image, language and speech models, such as 20-70-10"
            )
            raise FormatError("--models-of-trace", [FieldProblem("", described)])
        image, language, speech = (int(part) for part in text.split("-"))
        total = image + language + speech
        if total != 100:
            described = f"{text} adds up to {total}; the percentages of image, language and speech models make 100"
            raise FormatError("--models-of-trace", [FieldProblem("", described)])
        return ModelSplit(image, language, speech)


def assign_models(
    rows: Sequence[TraceRow], split: ModelSplit, known: Collection[str], rng: np.random.Generator
) -> tuple[TraceRow, ...]:
    """The rows with GPUs, each without a model given one: of a task by the split, and evenly among the task's models.

    A row takes two draws, whatever it is, so that the same seed treats the rows after it alike. Raises FormatError when
    none of a task's models is `known`, and the split wants some.
    """
    shares = (split.image, split.language, split.speech)
    chosen = [tuple(model for model in models if model in known) for models in MODELS_OF_TASKS.values()]
    for (task, models), share, there in zip(MODELS_OF_TASKS.items(), shares, chosen, strict=True):
        if share and not there:
            described = (
                f"{split} wants {task} models, but none of {', '.join(models)} has a profile; add one, or change it"
            )
            raise FormatError("--models-of-trace", [FieldProblem("", described)])
    limits = np.cumsum(shares)
    draws = rng.random((len(rows), 2)).tolist()
    assigned: list[TraceRow] = []
    for row, (of_tasks, of_models) in zip(rows, draws, strict=True):
        if row.model or row.gpus == 0:
            assigned.append(row)
            continue
        models = chosen[int(np.searchsorted(limits, of_tasks * 100.0, side="right"))]
        assigned.append(replace(row, model=models[int(of_models * len(models))]))
    return tuple(assigned)
