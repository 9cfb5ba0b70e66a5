"""Arrays: one specification for many workloads, which differ in their index alone.

What is written, `0-9999%50`, says which indices there are and how many elements may be in the queue or running at once. The
name of an element is that of its array and its index; people write ARRAY[7] for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from domain.identifiers import WorkloadId

GREATEST_ELEMENTS = 20_000
GREATEST_INDEX = 999_999
_INDEX_DIGITS = 6
"""In names of elements, so that they sort by their indices."""

_EXAMPLES = "such as 0-9999, 0-15:4 or 1,3,7, with %50 behind for at most 50 at once"
_is_range = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII).fullmatch
_is_limit = re.compile(r"\d{1,18}", re.ASCII).fullmatch
_is_element = re.compile(rf"(.+)-(\d{{{_INDEX_DIGITS}}})", re.ASCII).fullmatch
_is_written_element = re.compile(rf"([^\[\]]+)\[(\d{{1,{_INDEX_DIGITS}}})\]", re.ASCII).fullmatch


class BadArray(ValueError):
    """It does not say which elements there are. The sentence goes on after the name of the field."""


@dataclass(frozen=True, slots=True)
class WorkloadArray:
    """The elements of an array; `at_most` None: all of them may be in the queue at once."""

    ranges: tuple[range, ...]
    """No two of them share an index."""
    at_most: int | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.ranges))

    @property
    def indices(self) -> Iterator[int]:
        """Ascending."""
        return iter(sorted(chain.from_iterable(self.ranges)))

    @property
    def least(self) -> int:
        return min(one[0] for one in self.ranges)

    @property
    def greatest(self) -> int:
        return max(one[-1] for one in self.ranges)


def parse_array(text: str) -> WorkloadArray:
    """What is written, as Slurm has it. Raises BadArray; nothing is counted out before it is known to be small enough."""
    indices, percent, limit = text.partition("%")
    ranges = tuple(_range(part) for part in indices.split(","))
    size = sum(map(len, ranges))
    if size > GREATEST_ELEMENTS:
        raise BadArray(f"has {size:,} elements; at most {GREATEST_ELEMENTS:,} are possible: submit several arrays")
    seen: set[int] = set()
    for index in chain.from_iterable(ranges):
        if index in seen:
            raise BadArray(f"names index {index} twice; name it once")
        seen.add(index)
    if not percent:
        return WorkloadArray(ranges)
    if not _is_limit(limit) or not int(limit):
        raise BadArray(f"has %{limit} behind it; say how many elements may run at once, 1 or more, or leave it out")
    return WorkloadArray(ranges, int(limit))


def _range(part: str) -> range:
    found = _is_range(part)
    if found is None:
        raise BadArray(f"has {part!r}, which is no index and no range of indices; write them {_EXAMPLES}")
    first = int(found[1])
    last = first if found[2] is None else int(found[2])
    step = 1 if found[3] is None else int(found[3])
    if last < first:
        raise BadArray(f"has the range {part}, which goes backwards; write {last}-{first}")
    if not step:
        raise BadArray(f"has the range {part}, whose step is 0; a step is 1 or more")
    if last > GREATEST_INDEX:
        raise BadArray(f"has the index {last}; the greatest possible one is {GREATEST_INDEX}")
    return range(first, last + 1, step)


# ---------------------------------------------------------------- names


def element_name(array: WorkloadId, index: int) -> WorkloadId:
    """The name of an element."""
    return WorkloadId(f"{array}-{index:0{_INDEX_DIGITS}}")


def element_of(workload: WorkloadId) -> tuple[WorkloadId, int] | None:
    """The array of an element and its index; None for a name that no element can have."""
    found = _is_element(workload)
    return None if found is None else (WorkloadId(found[1]), int(found[2]))


def name_of_written(written: str) -> str:
    """The name of what people write as ARRAY[7]; everything else is a name already."""
    found = _is_written_element(written)
    return written if found is None else element_name(WorkloadId(found[1]), int(found[2]))


def array_environment(workload: WorkloadId, written: str) -> dict[str, str]:
    """What the tasks of an element know of their array, which was `written` so; nothing for what is no element."""
    element = element_of(workload)
    if not written or element is None:
        return {}
    array = parse_array(written)
    return {
        "TOPMAST_ARRAY_ID": element[0],
        "TOPMAST_ARRAY_INDEX": str(element[1]),
        "TOPMAST_ARRAY_SIZE": str(array.size),
        "TOPMAST_ARRAY_MIN": str(array.least),
        "TOPMAST_ARRAY_MAX": str(array.greatest),
    }


# ---------------------------------------------------------------- turns


def elements_due(at_most: int, active: int, waiting: Sequence[WorkloadId]) -> Sequence[WorkloadId]:
    """Which of the elements that wait, in their order, get their turn while so many others are in the queue or running.

    Never are more than `at_most` active with them, whatever ended or was held meanwhile.
    """
    return waiting[: max(0, at_most - active)]
