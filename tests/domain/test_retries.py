"""Which failures are tried again, and which exit codes a workload may name."""

from __future__ import annotations

import pytest

from domain.workload import RetryPolicy
from formats.exit_code_checks import check_exit_codes


@pytest.mark.parametrize(
    ("retry", "failures", "exit_codes", "again"),
    [
        (RetryPolicy(max_retries=1), 1, (3,), True),
        (RetryPolicy(max_retries=1), 2, (3,), False),
        (RetryPolicy(max_retries=1), 1, (), True),
        (RetryPolicy(max_retries=5, on_exit_codes=(3, 137)), 1, (137,), True),
        (RetryPolicy(max_retries=5, on_exit_codes=(3, 137)), 1, (1,), False),
        (RetryPolicy(max_retries=5, on_exit_codes=(3, 137)), 6, (137,), False),
        # Nobody knows with which one: it was none of these, as far as anybody can say.
        (RetryPolicy(max_retries=5, on_exit_codes=(3, 137)), 1, (), False),
        (RetryPolicy(max_retries=5, never_on=(2,)), 1, (2,), False),
        (RetryPolicy(max_retries=5, never_on=(2,)), 1, (1,), True),
        (RetryPolicy(max_retries=5, never_on=(2,)), 1, (), True),
        # Of a gang in several clusters each may have failed: one that must not be tried again decides.
        (RetryPolicy(max_retries=5, on_exit_codes=(3,), never_on=(2,)), 1, (3, 2), False),
        (RetryPolicy(max_retries=5, on_exit_codes=(3,), never_on=(2,)), 1, (1, 3), True),
    ],
)
def test_a_failure_is_tried_again(retry: RetryPolicy, failures: int, exit_codes: tuple[int, ...], again: bool) -> None:
    assert retry.tries_again(failures, exit_codes) is again


@pytest.mark.parametrize(
    ("retry", "problems"),
    [
        (RetryPolicy(1, on_exit_codes=(1, 255), never_on=(2,)), []),
        (RetryPolicy(1, on_exit_codes=(0,)), ["retry.on_exit_codes[0]"]),
        (RetryPolicy(1, never_on=(256, 3, 3)), ["retry.never_on[0]", "retry.never_on[2]"]),
        (RetryPolicy(1, on_exit_codes=(3,), never_on=(3,)), ["retry.never_on"]),
        (RetryPolicy(0, on_exit_codes=(3,)), ["retry.on_exit_codes"]),
        (RetryPolicy(1, on_exit_codes=tuple(range(1, 300))), ["retry.on_exit_codes"]),
    ],
)
def test_exit_codes_are_those_of_failures_each_once(retry: RetryPolicy, problems: list[str]) -> None:
    assert [problem.field for problem in check_exit_codes(retry)] == problems
