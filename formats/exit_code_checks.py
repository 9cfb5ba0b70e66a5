"""Which exit codes a workload may name for its retries."""

from __future__ import annotations

from domain.workload import RetryPolicy
from formats.problems import FieldProblem, in_quotes

GREATEST_EXIT_CODE = 255
GREATEST_EXIT_CODES = 255


def check_exit_codes(retry: RetryPolicy) -> list[FieldProblem]:
    """Every problem of the two lists: each has codes of failures, each once, and none of the other's."""
    problems: list[FieldProblem] = []
    for field, codes in (("on_exit_codes", retry.on_exit_codes), ("never_on", retry.never_on)):
        if len(codes) > GREATEST_EXIT_CODES:
            problems.append(
                FieldProblem(f"retry.{field}", f"are {len(codes)}; at most {GREATEST_EXIT_CODES} are possible")
            )
            continue
        for index, code in enumerate(codes):
            if type(code) is not int or not 1 <= code <= GREATEST_EXIT_CODE:
                description = f"must be a whole number from 1 to {GREATEST_EXIT_CODE}, not {in_quotes(code)}"
                problems.append(FieldProblem(f"retry.{field}[{index}]", description))
            elif code in codes[:index]:
                problems.append(FieldProblem(f"retry.{field}[{index}]", f"is {code} again; name it once"))
    both = sorted(set(retry.on_exit_codes) & set(retry.never_on), key=str)
    if both and not problems:
        problems.append(FieldProblem("retry.never_on", f"has {both[0]}, as on_exit_codes; keep it in one of the two"))
    if retry.on_exit_codes and not problems and retry.max_retries == 0:
        problems.append(FieldProblem("retry.on_exit_codes", "say when to try again, but max_retries is 0; raise it"))
    return problems
