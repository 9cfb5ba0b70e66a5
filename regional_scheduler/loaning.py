"""Lends machines of an inference cluster to training, and takes them back (Lyra §2.1, §4).

Rule: inference says how many of its machines it lends. When these are more than before, the first by the cluster's order
that work come; then those that are down; then those that are about to go back, which are kept. When they are fewer, the
reclaiming policy chooses which go back. Attempts that have only flexible tasks there go on without them; whatever else
runs there is asked to leave and saves its work, as when it is preempted. The machine takes nothing new meanwhile, and is
handed back when all that was on it has gone.

A lender is a state machine: events go in, and what is to be done comes out. The state of each machine is the
inventory's (and the database's), and moves by the table of `domain.machine_life_cycle`; the lender only remembers which
attempts each returning machine waits for. Whether a machine fails or is repaired is nothing to it: a loan outlasts that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId
from domain.machine_life_cycle import MachineHappening, next_machine_state
from domain.placement import AttemptKey
from domain.plan import Reclaim, ScaleIn
from regional_scheduler.reclaiming.policy import MachineOnLoan, ReclaimingPolicy, check_reclaim


@dataclass(frozen=True, slots=True)
class MachineChange:
    """To be done: the machine is in this state from now on."""

    machine: MachineId
    happening: MachineHappening
    state: MachineState
    reason: str
    """One sentence, for the event log."""


LoanAction: TypeAlias = MachineChange | ScaleIn | Reclaim
"""What is to be done, in the order in which it is answered. Reclaim: its machines are asked back, its victims to leave.
ScaleIn: when it is carried out, `Lender.scaled_in` is to hear of it."""
StateOf: TypeAlias = Callable[[MachineId], MachineState]
Occupancy: TypeAlias = Callable[[Sequence[MachineId]], Sequence[MachineOnLoan]]
"""What runs on these machines, in their order."""

_ON_LOAN = (MachineState.ON_LOAN, MachineState.ON_LOAN_DOWN)
_RETURNING = (MachineState.RETURNING, MachineState.RETURNING_DOWN)
_ALL_HAVE_LEFT = "inference wants it back, and all work has left it"


class Lender:
    """One inference cluster. `machines` are in the order in which they are lent."""

    def __init__(
        self, cluster: ClusterId, machines: Sequence[MachineId], returning: Sequence[MachineOnLoan] = ()
    ) -> None:
        """`returning` are those that are on their way back already, with what is still on them."""
        self.cluster = cluster
        self.machines = tuple(machines)
        self._awaited: dict[MachineId, dict[AttemptKey, bool]] = {}
        """The attempts that have yet to leave each returning machine, and whether they only scale in."""
        for machine in returning:
            self._await(machine, frozenset([there.key for there in machine.attempts]))

    def begin(self, count: int) -> tuple[MachineChange, ...]:
        """Lends so many of machines that were not used for training so far; the others serve inference."""
        reason = f"{self.cluster} begins with {count} machines on loan"
        lent, others = self.machines[:count], self.machines[count:]
        return (
            *(MachineChange(machine, MachineHappening.LENT, MachineState.ON_LOAN, reason) for machine in lent),
            *(MachineChange(machine, MachineHappening.HANDED_BACK, MachineState.SERVING, reason) for machine in others),
        )

    def lend(
        self, count: int, state_of: StateOf, occupancy: Occupancy, policy: ReclaimingPolicy, rng: np.random.Generator
    ) -> tuple[LoanAction, ...]:
        """So many machines are to be on loan from now on, those about to go back not counted.

        Raises BadReclaim when the policy's choice is none; then nothing has changed.
        """
        on_loan = [machine for machine in self.machines if state_of(machine) in _ON_LOAN]
        if count > len(on_loan):
            return self._lend_more(count - len(on_loan), state_of)
        if count < len(on_loan):
            return self._take_back(len(on_loan) - count, occupancy(on_loan), state_of, policy, rng)
        return ()

    def attempts_gone(self, keys: Iterable[AttemptKey], state_of: StateOf) -> tuple[MachineChange, ...]:
        """These attempts hold nothing any more: machines that waited for the last of them are handed back."""
        if not self._awaited:
            return ()
        for key in keys:
            for awaited in self._awaited.values():
                awaited.pop(key, None)
        return self._hand_back(state_of)

    def scaled_in(self, keys: Iterable[AttemptKey], state_of: StateOf) -> tuple[MachineChange, ...]:
        """These attempts have given up the flexible tasks that they were to: where they had only such, they are gone."""
        for key in keys:
            for awaited in self._awaited.values():
                if awaited.get(key):
                    del awaited[key]
        return self._hand_back(state_of)

    def _lend_more(self, count: int, state_of: StateOf) -> tuple[MachineChange, ...]:
        states = {machine: state_of(machine) for machine in self.machines}
        working = [machine for machine in self.machines if states[machine] is MachineState.SERVING]
        failed = [machine for machine in self.machines if states[machine] is MachineState.SERVING_DOWN]
        lent = frozenset((*working, *failed)[:count])
        kept = [machine for machine in self.machines if states[machine] in _RETURNING][: count - len(lent)]
        for machine in kept:
            del self._awaited[machine]
        reason = f"inference does not need it: {self.cluster} lends {count} more"
        return (
            *(
                _change(machine, states[machine], MachineHappening.LENT, reason)
                for machine in self.machines
                if machine in lent
            ),
            *(_change(machine, states[machine], MachineHappening.KEPT, reason) for machine in kept),
        )

    def _take_back(
        self,
        count: int,
        on_loan: Sequence[MachineOnLoan],
        state_of: StateOf,
        policy: ReclaimingPolicy,
        rng: np.random.Generator,
    ) -> tuple[LoanAction, ...]:
        choice = policy.choose(on_loan, count, rng)
        check_reclaim(policy.name, choice, on_loan, count)
        chosen, victims = frozenset(choice.reclaim.machines), frozenset(choice.reclaim.victims)
        asked_back = {
            machine: next_machine_state(machine, state_of(machine), MachineHappening.ASKED_BACK) for machine in chosen
        }
        for machine in on_loan:
            if machine.machine in chosen:
                self._await(machine, victims)
        return *choice.actions, *self._hand_back(lambda machine: asked_back.get(machine) or state_of(machine))

    def _await(self, machine: MachineOnLoan, victims: frozenset[AttemptKey]) -> None:
        self._awaited[machine.machine] = {
            **dict.fromkeys(machine.scaling_in, True),
            **{there.key: there.key not in victims for there in machine.attempts},
            **dict.fromkeys(machine.leaving, False),
        }

    def _hand_back(self, state_of: StateOf) -> tuple[MachineChange, ...]:
        vacated = [machine for machine in self.machines if self._awaited.get(machine) == {}]
        for machine in vacated:
            del self._awaited[machine]
        return tuple(
            _change(machine, state_of(machine), MachineHappening.HANDED_BACK, _ALL_HAVE_LEFT) for machine in vacated
        )


def _change(machine: MachineId, state: MachineState, happening: MachineHappening, reason: str) -> MachineChange:
    return MachineChange(machine, happening, next_machine_state(machine, state, happening), reason)
