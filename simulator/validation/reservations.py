"""Reservations in a log: of workloads that wait, on machines of their region, one for each at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from domain.events import EventKind
from domain.fleet import Fleet
from domain.reservation import ReservationEnd
from simulator.validation.lives import Lives
from simulator.validation.record_fields import BadField, Record, number_field, text_field, texts_field, whole_field
from simulator.validation.report import Findings, Invariant


class Reservations:
    """Keeps which workloads have one."""

    def __init__(self, fleet: Fleet, lives: Lives, findings: Findings) -> None:
        self._lives = lives
        self._findings = findings
        self._region_of = {
            str(machine.machine): str(region.region) for region in fleet.regions for machine in region.machines()
        }
        self._of: dict[str, str] = {}
        """The region of each reservation, by workload."""

    @property
    def handlers(self) -> Mapping[str, Callable[[Record, float], None]]:
        """By the kind of event."""
        return {EventKind.RESERVED.value: self.reserved, EventKind.RESERVATION_ENDED.value: self.ended}

    def reserved(self, record: Record, t_s: float) -> None:
        """A `reserved` event. Raises BadField."""
        region, machines = text_field(record, "region"), texts_field(record, "machines")
        text_field(record, "workload")
        texts_field(record, "clusters")
        whole_field(record, "gpus", 1)
        if number_field(record, "expires_s") < number_field(record, "expected_start_s"):
            raise BadField("expires before it is expected to start")
        if number_field(record, "expected_start_s") < t_s:
            raise BadField("is expected to start in the past")
        for machine in machines:
            if self._region_of.get(machine) != region:
                raise BadField(f"names machine {machine}, which is not of region {region}")
        life = self._lives.of_record(record)
        if life is None:
            return
        if life.attempt is not None:
            self._add(f"machines are kept for {life.name}, which does not wait")
        if life.name in self._of:
            self._add(
                f"machines are kept for {life.name} in {region}, for which some are kept in {self._of[life.name]}"
            )
        self._of[life.name] = region

    def ended(self, record: Record, _t_s: float) -> None:
        """A `reservation_ended` event; its workload may have ended before. Raises BadField."""
        workload, region, reason = (text_field(record, name) for name in ("workload", "region", "reason"))
        if reason not in [one.value for one in ReservationEnd]:
            raise BadField(f"has reason {reason}, which is none of {', '.join(one.value for one in ReservationEnd)}")
        if self._of.get(workload) != region:
            self._add(f"a reservation of {workload} in {region} ends, but there is none")
            return
        del self._of[workload]

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.LOG, sentence)
