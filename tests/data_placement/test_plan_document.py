"""What is left where when all that a plan proposes was done."""

import numpy as np
import pytest

from data_placement.move_kinds import COPY, HOME, HOME_KEEPING_COPY
from data_placement.plan_choices import PlanChoices, plan_by_choices
from data_placement.plan_document import proposed_moves
from data_placement.solvers.plan import undisturbed
from data_placement.warehouse_generator import generate_warehouse


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_never_fewer_copies_than_a_plan_counts(seed: int) -> None:
    warehouse = generate_warehouse(200, 4, np.random.default_rng(seed))
    found = plan_by_choices(warehouse, PlanChoices(), np.random.default_rng(seed), undisturbed)
    tables, names = warehouse.tables, warehouse.regions.names
    held = [
        {region for region in range(len(names)) if region == home or replicas >> region & 1}
        for home, replicas in zip(tables.home.tolist(), tables.replicas.tolist(), strict=True)
    ]
    place = {name: index for index, name in enumerate(tables.names)}
    kinds = set()
    for move in proposed_moves(warehouse, found):
        kinds.add(move.kind)
        copies = held[place[move.table]]
        copies.add(names.index(move.target))
        if move.kind == HOME:
            copies.remove(names.index(move.source))
    assert kinds == {HOME, HOME_KEEPING_COPY, COPY}
    for copies, home, mask in zip(held, found.solution.home.tolist(), found.replicas.masks.tolist(), strict=True):
        assert copies >= {home, *(region for region in range(len(names)) if mask >> region & 1)}
