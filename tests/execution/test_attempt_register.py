import pytest

from domain.identifiers import WorkloadId
from services.execution.attempt_register import AttemptRegister
from services.execution.executor import StaleOrder
from tests.execution.orders import key


def test_numbers_only_grow() -> None:
    register = AttemptRegister()
    assert register.newest(WorkloadId("w")) == 0
    register.admit(key(attempt=2))
    register.admit(key(attempt=2))
    register.admit(key(attempt=5))
    assert register.newest(WorkloadId("w")) == 5
    with pytest.raises(StaleOrder):
        register.admit(key(attempt=4))


def test_what_is_forgotten_is_refused_but_its_successor_is_not() -> None:
    register = AttemptRegister()
    register.admit(key(attempt=1))
    register.forget(key(attempt=1))
    with pytest.raises(StaleOrder, match="its end is recorded"):
        register.admit(key(attempt=1))
    register.admit(key(attempt=2))
    register.forget(key(attempt=1))
    register.admit(key(attempt=2))


def test_the_memory_of_what_is_over_is_bounded() -> None:
    register = AttemptRegister(remembered_workloads=10)
    for number in range(100):
        register.admit(key(f"w{number}"))
        register.forget(key(f"w{number}"))
    register.admit(key("w0"))
    with pytest.raises(StaleOrder):
        register.admit(key("w99"))
