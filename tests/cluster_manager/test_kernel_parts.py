"""Small kernels against plain Python."""

from types import FunctionType

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

from cluster_manager.capacity import charging, cluster_tables, free_counts, released_capacity
from cluster_manager.capacity.tables import Integers
from cluster_manager.eviction import required_victims
from cluster_manager.kernels.sorting import put_in_stable_order
from cluster_manager.packing import search
from cluster_manager.packing.gpu_choice import lowest_gpus
from kernels.compiled import compiled, constant
from services.runtime.kernels import compile_kernels


@compiled
def sort_for_test(key: Integers, order: Integers, spare: Integers) -> None:
    put_in_stable_order(key, len(key), order, spare)


@compiled
def lowest_for_test(free_gpus: int, gpus: int) -> int:
    return lowest_gpus(free_gpus, gpus)


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**62), 2**62), max_size=200))
def test_never_sorts_other_than_python_does(keys: list[int]) -> None:
    order = np.empty(len(keys), np.int64)
    sort_for_test(np.array(keys, np.int64), order, np.empty(len(keys), np.int64))
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)


@given(st.sets(st.integers(0, 61)), st.integers(0, 62))
def test_never_chooses_other_than_the_lowest_gpus(free: set[int], gpus: int) -> None:
    chosen = lowest_for_test(sum(1 << gpu for gpu in free), gpus)
    assert chosen == sum(1 << gpu for gpu in sorted(free)[:gpus])


ADDEND = 0


def add(number: int) -> int:
    return number + ADDEND


def add_twice(number: int) -> int:
    return add(add(number))


def cached_name(addend: int, callee_addend: int) -> str:
    """Under which name a kernel is cached that reads the one constant and calls a kernel that reads the other."""
    callee = FunctionType(add.__code__, {"ADDEND": callee_addend}, "add")
    kernel = FunctionType(add_twice.__code__, {"ADDEND": addend, "add": compiled(callee)}, "add_twice")
    reader = FunctionType(add.__code__, {"ADDEND": addend}, "add")
    compiled(kernel)
    compiled(reader)
    return f"{kernel.__qualname__} {reader.__qualname__}"


def test_a_kernel_is_cached_anew_when_a_constant_or_a_callee_changes() -> None:
    names = {cached_name(1, 1), cached_name(2, 1), cached_name(1, 2)}
    assert len(names) == 3
    assert cached_name(1, 1) in names


def test_a_constant_is_the_number_it_was_made_from() -> None:
    assert constant(-1) == -1
    assert constant(1 << 62) == 1 << 62


def test_compiling_kernels_leaves_no_kernel_to_be_compiled() -> None:
    """Whatever is called from Python has an entry for its types afterwards."""
    compile_kernels()
    entries = [
        function
        for module in (charging, cluster_tables, free_counts, released_capacity, required_victims, search)
        for function in vars(module).values()
        if isinstance(function, Dispatcher) and function.py_func.__module__ == module.__name__
    ]
    called_from_python = {function.py_func.__name__ for function in entries if function.nopython_signatures}
    assert called_from_python >= {
        "charge_entries",
        "count_all",
        "find_free_place",
        "find_place_evicting",
        "first_conflict",
        "hold_entries",
        "mark_leaving",
        "mark_required",
        "most_gained",
        "no_tables",
        "put_tables",
        "release_entries",
        "switch_and_count",
    }
