"""What users ask of their workloads: what is held is not dispatched, and what is changed asks for something else from then on."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from domain.events import EventKind
from simulator.validation.lives import Lives
from simulator.validation.quotas import Quotas
from simulator.validation.record_fields import BadField, Record, text_field, texts_field, whole_field
from simulator.validation.report import Findings, Invariant


class UserRequests:
    """Who is held at present, and what became of workloads that were changed."""

    def __init__(self, lives: Lives, quotas: Quotas, findings: Findings) -> None:
        self._lives = lives
        self._quotas = quotas
        self._findings = findings
        self.handlers: MappingProxyType[str, Callable[[Record, float], None]] = MappingProxyType(
            {
                EventKind.HELD.value: self._held,
                EventKind.RELEASED.value: self._released,
                EventKind.CHANGED.value: self._changed,
            }
        )

    def _held(self, record: Record, _t_s: float) -> None:
        text_field(record, "by")
        life = self._lives.of_record(record)
        if life is not None:
            life.held = True

    def _released(self, record: Record, _t_s: float) -> None:
        text_field(record, "by")
        life = self._lives.of_record(record)
        if life is None:
            return
        if not life.held:
            self._findings.add(Invariant.LOG, "is released, but was not held")
        life.held = False

    def _changed(self, record: Record, _t_s: float) -> None:
        """From now on it is judged by what it asks for now."""
        text_field(record, "by")
        whole_field(record, "revision", 1)
        changed = record.get("changed")
        if not isinstance(changed, dict):
            raise BadField("has no `changed`, which must say what is different")
        life = self._lives.of_record(record)
        if life is None:
            return
        if "regions" in changed:
            life.regions = texts_field(changed, "regions")
        if "priority" in changed:
            life.asked_priority = None if changed["priority"] is None else whole_field(changed, "priority")
            life.charge = self._quotas.charge_of(life.tenant, life.jobs_submitted.values(), life.asked_priority)
