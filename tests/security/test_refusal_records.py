"""A caller that is refused again and again does not fill the audit log, nor hide others in it."""

from __future__ import annotations

from services.security.principal import Principal, PrincipalKind
from services.security.refusal_records import AT_ONCE, RefusalRecords
from services.security.roles import Role


def test_a_loop_of_refusals_leaves_a_bounded_number_of_records() -> None:
    now_s = 0.0
    records = RefusalRecords(lambda: now_s)
    mallory, bob = (
        Principal(name, Role.TENANT, frozenset({"vision"}), PrincipalKind.TOKEN, name) for name in ("mallory", "bob")
    )
    first = [records.admit(mallory) for _ in range(1_000)]
    assert first == [0] * AT_ONCE + [None] * (1_000 - AT_ONCE)
    assert records.admit(bob) == 0
    now_s = 2.0
    assert [records.admit(mallory) for _ in range(3)] == [1_000 - AT_ONCE, 0, None]
    now_s = 10_000.0
    later = [records.admit(mallory) for _ in range(AT_ONCE + 1)]
    assert later == [1] + [0] * (AT_ONCE - 1) + [None]
