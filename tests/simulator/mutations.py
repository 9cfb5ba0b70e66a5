"""Single lies: each changes one thing in a legal log so that it is no longer legal.

A mutation gets the records (its own copies) and a generator, and returns the invariants of which at least one must
be reported, or None when there is nothing in this log that it could change.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simulator.validation.report import Invariant
from tests.simulator.log_builder import Json, entries, items, real, whole

Found = set[Invariant] | None
Mutation = Callable[[list[Json], np.random.Generator], Found]

I1, I2, I4, I5 = Invariant.I1, Invariant.I2, Invariant.I4, Invariant.I5
I8, I9, LOG = Invariant.I8, Invariant.I9, Invariant.LOG
ENDS = {"completed", "cancelled"}
OF_ATTEMPTS = {"started", "checkpointed", "resized", "tuned", "evicting", "evicted", "reclassified", "completed"}


def _pick(records: list[Json], rng: np.random.Generator, wanted: Callable[[Json], bool]) -> int | None:
    places = [index for index, record in enumerate(records) if wanted(record)]
    return places[int(rng.integers(len(places)))] if places else None


def _is(*kinds: str) -> Callable[[Json], bool]:
    return lambda record: record["event"] in kinds


def _change(kinds: set[str], change: Callable[[Json], bool], found: set[Invariant]) -> Mutation:
    """Changes one record of these kinds; `change` says whether it could."""

    def mutate(records: list[Json], rng: np.random.Generator) -> Found:
        order = rng.permutation([index for index, record in enumerate(records) if record["event"] in kinds])
        return found if any(change(records[int(index)]) for index in order) else None

    return mutate


def _emulated_only(change: Callable[[Json], bool], kinds: set[str]) -> Mutation:
    def mutate(records: list[Json], rng: np.random.Generator) -> Found:
        emulated = {r["workload"] for r in records if r["event"] == "submitted" and r["emulated"]}
        place = _pick(records, rng, lambda r: r["event"] in kinds and r["workload"] in emulated and "progress" in r)
        return {I9} if place is not None and change(records[place]) else None

    return mutate


def leave_out_an_end(records: list[Json], rng: np.random.Generator) -> Found:
    place = _pick(records, rng, lambda r: r["event"] in ENDS or (r["event"] == "failed" and bool(r["final"])))
    if place is None:
        return None
    del records[place]
    return {I8}


def end_twice(records: list[Json], rng: np.random.Generator) -> Found:
    place = _pick(records, rng, _is(*ENDS))
    if place is None:
        return None
    records.insert(place, dict(records[place]))
    return {I8}


def leave_out_the_submission(records: list[Json], rng: np.random.Generator) -> Found:
    place = _pick(records, rng, _is("submitted"))
    if place is None:
        return None
    del records[place]
    return {I8}


def dispatch_twice(records: list[Json], rng: np.random.Generator) -> Found:
    place = _pick(records, rng, _is("dispatched"))
    if place is None:
        return None
    records.insert(place + 1, dict(records[place]))
    return {I8}


def leave_out_the_start_of_what_completes(records: list[Json], rng: np.random.Generator) -> Found:
    completed = {(r["workload"], r["attempt"]) for r in records if r["event"] == "completed"}
    place = _pick(records, rng, lambda r: r["event"] == "started" and (r["workload"], r["attempt"]) in completed)
    if place is None:
        return None
    del records[place]
    return {I8}


def _another_attempt(record: Json) -> bool:
    record["attempt"] = whole(record["attempt"]) + 1
    return True


def _edit_placement(change: Callable[[list[Json]], bool]) -> Callable[[Json], bool]:
    def edit(record: Json) -> bool:
        placement = [dict(entry) for entry in entries(record["placement"])]
        done = change(placement)
        record["placement"] = list(placement)
        return done

    return edit


def _gpu_that_is_not_there(placement: list[Json]) -> bool:
    for entry in placement:
        if entry["gpus"]:
            entry["gpus"] = [*items(entry["gpus"])[1:], 4]
            return True
    return False


def _too_much(field: str) -> Callable[[list[Json]], bool]:
    def edit(placement: list[Json]) -> bool:
        placement[0][field] = 1e6
        return True

    return edit


def _another_machine(placement: list[Json]) -> bool:
    east = placement[0]["machine"] != "w1"
    placement[0] |= {"machine": "w1", "cluster": "west-a"} if east else {"machine": "e1", "cluster": "east-a"}
    return True


def _without_the_first_task(placement: list[Json]) -> bool:
    del placement[0]
    return True


def _first_task_twice(placement: list[Json]) -> bool:
    placement.append(dict(placement[0]))
    return True


def _one_gpu_less(placement: list[Json]) -> bool:
    for entry in placement:
        if entry["gpus"]:
            entry["gpus"] = items(entry["gpus"])[1:]
            return True
    return False


def _more_progress(record: Json) -> bool:
    record["progress"] = real(record["progress"]) + 1e6
    return True


def _less_progress(record: Json) -> bool:
    record["progress"] = real(record["progress"]) - 0.5
    return real(record["progress"]) >= 0


def _keep_more_than_reached(record: Json) -> bool:
    record["checkpoint_progress"] = real(record["progress"]) + 1.0
    return "attempt" in record


def _start_with_more(record: Json) -> bool:
    record["progress"] = real(record["progress"]) + 0.1
    return True


def _boast(record: Json) -> bool:
    if record["cause"] != "preempted":
        return False
    record["by_level"] = whole(record["by_level"]) + 1
    return True


def _for_nobody(record: Json) -> bool:
    record |= {"cause": "preempted", "by": "ghost", "by_priority": 0, "by_level": 0}
    return True


def _without_a_word(record: Json) -> bool:
    had = bool(record["evicts"])
    record["evicts"] = []
    return had


def _good_priority_beyond_quota(record: Json) -> bool:
    had = not record["within_quota"]
    record["priority"] = 0
    return had


def _foreign_priority(record: Json) -> bool:
    record["priority"] = 0
    return bool(record["within_quota"])


def _back_in_time(record: Json) -> bool:
    record["t"] = 1.0
    return True


MUTATIONS: dict[str, Mutation] = {
    "an end is left out": leave_out_an_end,
    "an end comes twice": end_twice,
    "a submission is left out": leave_out_the_submission,
    "a dispatch comes twice": dispatch_twice,
    "a start is left out": leave_out_the_start_of_what_completes,
    "an event of another attempt": _change(OF_ATTEMPTS, _another_attempt, {I8}),
    "a GPU that is not there": _change({"dispatched", "started"}, _edit_placement(_gpu_that_is_not_there), {I1}),
    "far too many CPUs": _change({"started", "resized", "tuned"}, _edit_placement(_too_much("cpus")), {I1}),
    "far too much memory": _change({"started", "resized", "tuned"}, _edit_placement(_too_much("memory_gib")), {I1}),
    "a machine of another region": _change({"dispatched", "started"}, _edit_placement(_another_machine), {I1}),
    "a task is missing": _change({"dispatched", "started"}, _edit_placement(_without_the_first_task), {I2}),
    "a task comes twice": _change({"dispatched", "started"}, _edit_placement(_first_task_twice), {I2}),
    "a GPU less than asked for": _change({"dispatched", "started"}, _edit_placement(_one_gpu_less), {I2}),
    "progress out of nothing": _emulated_only(_more_progress, {"checkpointed", "evicted", "failed", "completed"}),
    "completed with work left": _emulated_only(_less_progress, {"completed"}),
    "more is kept than was reached": _change({"evicted", "failed"}, _keep_more_than_reached, {I9}),
    "more is restored than was kept": _change({"started"}, _start_with_more, {I9}),
    "the newcomer's standing is another": _change({"evicting"}, _boast, {I5}),
    "evicted for nobody": _change({"evicting", "evicted"}, _for_nobody, {I5}),
    "evictions that the dispatch does not list": _change({"dispatched"}, _without_a_word, {I5}),
    "beyond quota with a good priority": _change({"dispatched", "ranked"}, _good_priority_beyond_quota, {I4}),
    "within quota with a foreign priority": _change({"dispatched", "ranked"}, _foreign_priority, {I4}),
    "time goes back": _change(OF_ATTEMPTS - {"evicting", "reclassified"}, _back_in_time, {LOG}),
}
