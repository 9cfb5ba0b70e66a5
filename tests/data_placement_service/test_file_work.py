"""Movers on real files: whole or not there, whatever stops them, and never fewer complete copies than before."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from services.data_placement.movers.file_work import carry_out
from services.data_placement.movers.orders import MoverOrder, MoverTask, OrderedPart, Partition, paths_of
from services.data_placement.movers.region_folders import OWN_PREFIX, MoverProblem, RegionFolder, part_name
from tests.examples import examples

CONTENTS = {"2026-01.parquet": b"january" * 1_000, "2026-02.parquet": b"", "2026-03.parquet": os.urandom(3_000_000)}
SIZE = sum(map(len, CONTENTS.values()))


class Unhurried:
    """Counts what passes, and lets it."""

    def __init__(self) -> None:
        self.copied = 0

    def passed(self, part: int, size: int) -> None:
        self.copied += size

    def there(self, size: int) -> None:
        self.copied += size

    def in_charge(self) -> None:
        return None

    def goes_on(self) -> None:
        return None


class Stopped(Exception):
    """The mover dies here."""


class StopsAt(Unhurried):
    """Dies when so many bytes have passed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def passed(self, part: int, size: int) -> None:
        super().passed(part, size)
        if self.copied >= self._size:
            raise Stopped


@pytest.fixture
def storage(tmp_path: Path) -> dict[str, Path]:
    """Region a has the table."""
    regions = {region: tmp_path / region for region in "abc"}
    folder = regions["a"] / "logs.clicks"
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return regions


def order(regions: dict[str, Path], task: MoverTask = MoverTask.COPY, *paths: str, **changes: object) -> MoverOrder:
    """A move of the table from a to b; `paths` such as `acb`."""
    ways = paths or ("ab",)
    parts = tuple(OrderedPart(tuple(way), SIZE // len(ways)) for way in ways)
    urls = tuple((region, f"file://{folder}") for region, folder in sorted(regions.items()))
    whole = MoverOrder(task, 7, 1, "logs.clicks", "b", "a", urls, parts, (), SIZE)
    return replace(whole, **changes)  # type: ignore[arg-type]  # fields by name


def files(storage: dict[str, Path], region: str) -> dict[str, bytes]:
    folder = storage[region] / "logs.clicks"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.exists() else {}


def partitions_of(contents: dict[str, bytes]) -> tuple[Partition, ...]:
    return tuple(
        Partition(name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        for name, content in sorted(contents.items())
    )


def test_a_table_goes_from_one_region_to_another(storage: dict[str, Path]) -> None:
    progress = Unhurried()
    carry_out(order(storage), progress)
    assert progress.copied == SIZE
    carry_out(order(storage, MoverTask.VERIFY), progress)
    assert {name for name in files(storage, "b") if name.startswith(OWN_PREFIX)}
    carry_out(order(storage, MoverTask.SETTLE), progress)
    assert files(storage, "b") == files(storage, "a") == CONTENTS
    assert carry_out(order(storage, MoverTask.DELETE), progress) == ""
    assert files(storage, "a") == {}
    assert not (storage["a"] / "logs.clicks").exists()
    assert files(storage, "b") == CONTENTS
    carry_out(order(storage, MoverTask.DELETE), progress)


def test_of_a_copy_that_is_behind_only_what_it_lacks_is_copied(storage: dict[str, Path]) -> None:
    known = partitions_of(CONTENTS)
    behind = dict(list(CONTENTS.items())[:2])
    for partitions in ((), known):
        for name, content in behind.items():
            (storage["b"] / "logs.clicks").mkdir(parents=True, exist_ok=True)
            (storage["b"] / "logs.clicks" / name).write_bytes(content)
        carry_out(order(storage, partitions=partitions), Unhurried())
        carry_out(order(storage, MoverTask.CLEAN, partitions=partitions), Unhurried())
        assert files(storage, "b") == behind
    for task in (MoverTask.COPY, MoverTask.VERIFY, MoverTask.SETTLE):
        carry_out(order(storage, task), Unhurried())
    assert files(storage, "b") == CONTENTS


def test_over_a_third_region_nothing_stays_there(storage: dict[str, Path]) -> None:
    carry_out(order(storage, MoverTask.COPY, "ab", "acb"), Unhurried())
    carry_out(order(storage, MoverTask.VERIFY, "ab", "acb"), Unhurried())
    carry_out(order(storage, MoverTask.SETTLE, "ab", "acb"), Unhurried())
    assert files(storage, "b") == CONTENTS
    assert not (storage["c"] / "logs.clicks").exists()


def test_partitions_go_the_way_on_which_they_begin() -> None:
    partitions = [Partition(name, 10) for name in "vwxyz"]
    parts = [OrderedPart(("a", "b"), 25), OrderedPart(("a", "c", "b"), 25)]
    assert ["".join(path) for path in paths_of(partitions, parts)] == ["ab", "ab", "ab", "acb", "acb"]


def test_never_half_a_partition_wherever_it_stops(storage: dict[str, Path]) -> None:
    for stop in range(0, SIZE, 400_000):
        with pytest.raises(Stopped):
            carry_out(order(storage, MoverTask.COPY, "acb", token=stop), StopsAt(stop))
        there = {name: content for name, content in files(storage, "b").items() if not name.startswith(OWN_PREFIX)}
        assert there.items() <= CONTENTS.items()
        assert files(storage, "a") == CONTENTS
    carry_out(order(storage, MoverTask.COPY, "acb"), Unhurried())
    carry_out(order(storage, MoverTask.VERIFY, "acb"), Unhurried())
    carry_out(order(storage, MoverTask.SETTLE, "acb"), Unhurried())
    assert files(storage, "b") == CONTENTS
    assert files(storage, "c") == {}


def test_what_is_there_already_is_not_copied_again(storage: dict[str, Path]) -> None:
    class CountsNew(Unhurried):
        new = 0

        def passed(self, part: int, size: int) -> None:
            self.new += size

    carry_out(order(storage), Unhurried())
    again = CountsNew()
    carry_out(order(storage, token=2), again)
    assert (again.new, again.copied) == (0, SIZE)


def test_what_was_given_up_leaves_nothing(storage: dict[str, Path]) -> None:
    with pytest.raises(Stopped):
        carry_out(order(storage), StopsAt(SIZE // 2))
    carry_out(order(storage, MoverTask.CLEAN), Unhurried())
    assert not (storage["b"] / "logs.clicks").exists()
    assert files(storage, "a") == CONTENTS


def test_a_damaged_copy_is_found_and_copied_again(storage: dict[str, Path]) -> None:
    carry_out(order(storage), Unhurried())
    damaged = storage["b"] / "logs.clicks" / "2026-01.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.raises(MoverProblem, match=r"2026-01.parquet of logs.clicks in region b has 7000 bytes with checksum"):
        carry_out(order(storage, MoverTask.VERIFY), Unhurried())
    carry_out(order(storage), Unhurried())
    carry_out(order(storage, MoverTask.VERIFY), Unhurried())
    assert CONTENTS.items() <= files(storage, "b").items()


def test_a_source_that_is_not_what_the_catalog_says_is_not_copied(storage: dict[str, Path]) -> None:
    expected = partitions_of(CONTENTS | {"2026-01.parquet": b"january" * 999 + b"?"})
    with pytest.raises(MoverProblem, match="has 7000 bytes, not 6994"):
        carry_out(order(storage, partitions=expected), Unhurried())
    expected = partitions_of(CONTENTS | {"2026-01.parquet": b"JANUARY" * 1_000})
    with pytest.raises(MoverProblem, match=r"in region a has checksum sha256:\w+, not sha256:\w+ as the catalog says"):
        carry_out(order(storage, partitions=expected), Unhurried())
    expected = (*partitions_of(CONTENTS), Partition("2026-04.parquet", 5))
    with pytest.raises(MoverProblem, match=r"the storage of region a has no file 2026-04.parquet of logs.clicks"):
        carry_out(order(storage, partitions=expected), Unhurried())
    with pytest.raises(MoverProblem, match=r"the storage of region c has no file of logs.clicks"):
        carry_out(order(storage, MoverTask.COPY, "cb"), Unhurried())


class Interferes(Unhurried):
    """Does something to the source as soon as something has passed."""

    def __init__(self, interfere: Callable[[], object]) -> None:
        super().__init__()
        self._interfere: Callable[[], object] | None = interfere

    def passed(self, part: int, size: int) -> None:
        super().passed(part, size)
        interfere, self._interfere = self._interfere, None
        if interfere is not None:
            interfere()


def test_a_source_that_changes_in_mid_copy_is_not_taken(storage: dict[str, Path]) -> None:
    first = storage["a"] / "logs.clicks" / "2026-01.parquet"
    changed = b"JANUARY" * 1_000
    with pytest.raises(MoverProblem, match=r"2026-01.parquet of logs.clicks in region a changed while it was copied"):
        carry_out(order(storage), Interferes(lambda: first.write_bytes(changed)))
    assert "2026-01.parquet" not in files(storage, "b")
    carry_out(order(storage), Unhurried())
    assert files(storage, "b")["2026-01.parquet"] == changed


def test_a_source_that_is_deleted_in_mid_copy_is_still_there_at_the_target(storage: dict[str, Path]) -> None:
    partitions = partitions_of(CONTENTS)
    first = storage["a"] / "logs.clicks" / "2026-01.parquet"
    carry_out(order(storage, partitions=partitions), Interferes(first.unlink))
    for task in (MoverTask.VERIFY, MoverTask.SETTLE):
        carry_out(order(storage, task, partitions=partitions), Unhurried())
    assert files(storage, "b") == CONTENTS


def test_a_source_without_all_files_is_not_copied(storage: dict[str, Path]) -> None:
    (storage["a"] / "logs.clicks" / "2026-01.parquet").unlink()
    sentence = r"the files of logs.clicks in region a have 3000000 bytes, not 3007000 as the catalog says"
    with pytest.raises(MoverProblem, match=sentence):
        carry_out(order(storage), Unhurried())
    assert files(storage, "b") == {}


def test_what_earlier_tries_left_half_written_takes_no_room(storage: dict[str, Path]) -> None:
    for token in range(5):
        with pytest.raises(Stopped):
            carry_out(order(storage, MoverTask.COPY, "acb", token=token), StopsAt(SIZE))
        begun = [name for region in "bc" for name in files(storage, region) if name.startswith(part_name(7))]
        assert len(begun) == 1


def test_what_only_the_source_has_is_not_deleted(storage: dict[str, Path]) -> None:
    carry_out(order(storage), Unhurried())
    late = storage["a"] / "logs.clicks" / "2026-04.parquet"
    late.write_bytes(b"april")
    remark = carry_out(order(storage, MoverTask.DELETE), Unhurried())
    assert remark == "files of logs.clicks stay in a, for b does not have them: 2026-04.parquet"
    assert files(storage, "a") == {"2026-04.parquet": b"april"}


def test_a_replica_is_compared_and_neither_written_nor_cleaned(storage: dict[str, Path]) -> None:
    carry_out(order(storage), Unhurried())
    carry_out(order(storage, MoverTask.SETTLE), Unhurried())
    there = order(storage, parts=())
    carry_out(there, StopsAt(0))
    carry_out(replace(there, task=MoverTask.VERIFY), Unhurried())
    carry_out(replace(there, task=MoverTask.CLEAN), Unhurried())
    assert files(storage, "b") == CONTENTS
    (storage["b"] / "logs.clicks" / "2026-01.parquet").write_bytes(b"old")
    with pytest.raises(MoverProblem, match="has 3 bytes with checksum"):
        carry_out(replace(there, task=MoverTask.VERIFY), Unhurried())


def test_storage_that_nothing_is_known_of(storage: dict[str, Path]) -> None:
    urls = tuple((region, f"file://{folder}") for region, folder in sorted(storage.items()) if region != "b")
    with pytest.raises(MoverProblem, match=r"nothing says where region b stores tables: data.regions.b.storage"):
        carry_out(order(storage, storage=urls), Unhurried())
    with pytest.raises(MoverProblem, match="the storage of region b, nowhere://x, cannot be reached"):
        carry_out(order(storage, storage=(*urls, ("b", "nowhere://x"))), Unhurried())


class SmallStorage(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Has room for a megabyte."""

    protocol = "small"
    store: ClassVar[dict[str, object]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def open(self, path: str, mode: str = "rb", **options: object) -> object:
        file = super().open(path, mode, **options)
        if "w" not in mode:
            return file
        write = file.write

        def limited(data: bytes) -> int:
            if file.tell() + len(data) > 1_000_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(write(data))

        file.write = limited
        return file


@pytest.fixture
def small_storage() -> Iterator[str]:
    fsspec.register_implementation("small", SmallStorage, clobber=True)
    yield "small://tables"
    SmallStorage.store.clear()


def test_a_full_storage_is_a_sentence_and_no_copy_is_lost(storage: dict[str, Path], small_storage: str) -> None:
    urls = tuple(
        (region, small_storage if region == "b" else f"file://{folder}") for region, folder in sorted(storage.items())
    )
    there = order(storage, storage=urls)
    with pytest.raises(MoverProblem, match=r"copy of logs.clicks to b: the storage of region b is full"):
        carry_out(there, Unhurried())
    carry_out(replace(there, task=MoverTask.CLEAN), Unhurried())
    assert RegionFolder("b", small_storage, Unhurried()).partitions("logs.clicks") == []
    assert files(storage, "a") == CONTENTS


def beat(rate: float, certain_until: float = math.inf) -> str:
    """What whoever is in charge says again and again."""
    return json.dumps({"rates": [rate], "certain_until": certain_until})


@contextmanager
def mover_process(text: str, line: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """The process that does an order, its input and its output; it has ended afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "services.data_placement.movers.file_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{text}\n{line}\n")
        process.stdin.flush()
        yield process, process.stdin, process.stdout
        process.kill()


@pytest.mark.parametrize("changes", [{"table": "../a/logs.clicks"}, {"partitions": (Partition("../../c/x", 1),)}])
def test_no_name_leads_out_of_the_folder_of_a_region(storage: dict[str, Path], changes: dict[str, object]) -> None:
    for task in (MoverTask.COPY, MoverTask.CLEAN, MoverTask.DELETE) if "table" in changes else (MoverTask.COPY,):
        with pytest.raises(MoverProblem, match="is no name of a file in the storage of region"):
            carry_out(order(storage, task, **changes), Unhurried())
    assert files(storage, "a") == CONTENTS


def test_a_process_does_one_order_and_dies_with_whoever_started_it(storage: dict[str, Path]) -> None:
    fast, stopped = beat(1e12), beat(0.0)
    assert MoverOrder.from_json(order(storage).as_json()) == order(storage)
    with mover_process(order(storage).as_json(), fast) as (process, _, output):
        assert json.loads(output.readlines()[-1]) == {"done": True, "remark": ""}
        assert process.wait() == 0
    with mover_process(order(storage, MoverTask.COPY, "cb").as_json(), fast) as (_, _, output):
        assert json.loads(output.readlines()[-1]) == {"failed": "the storage of region c has no file of logs.clicks"}
    endless = order(storage, target="c", parts=(OrderedPart(("a", "c"), SIZE),))
    with mover_process(endless.as_json(), stopped) as (process, given, _):
        given.close()
        assert process.wait() == 3
    assert files(storage, "a") == CONTENTS


@pytest.mark.parametrize("task", [MoverTask.COPY, MoverTask.CLEAN, MoverTask.DELETE])
def test_a_process_whose_lease_may_be_another_s_changes_nothing(storage: dict[str, Path], task: MoverTask) -> None:
    if task is not MoverTask.COPY:
        carry_out(order(storage), Unhurried())  # with the notes of this migration
    before = {region: files(storage, region) for region in "ab"}
    over, begun_s = beat(1e12, time.monotonic() - 1.0), time.monotonic()
    with mover_process(order(storage, task).as_json(), over) as (process, given, output):
        # It says that it is alive once a second; each time that it finds its lease over counts as a step.
        while json.loads(output.readline()).get("alive", 0) < 3:
            assert process.poll() is None
        named = {
            region: {name: content for name, content in files(storage, region).items() if name in CONTENTS}
            for region in "ab"
        }
        assert named == {
            region: {name: content for name, content in there.items() if name in CONTENTS}
            for region, there in before.items()
        }
        given.write(beat(1e12, begun_s + 3_600.0) + "\n")
        given.flush()
        assert "done" in output.readlines()[-1]
    after = {MoverTask.COPY: (CONTENTS, CONTENTS), MoverTask.CLEAN: (CONTENTS, {}), MoverTask.DELETE: ({}, CONTENTS)}
    for region, wanted in zip("ab", after[task], strict=True):
        found = files(storage, region)
        assert {name: content for name, content in found.items() if name in CONTENTS} == wanted


def test_what_cannot_be_reached_any_more_holds_no_withdrawn_copy_up(storage: dict[str, Path]) -> None:
    urls = tuple((region, f"file://{folder}") for region, folder in sorted(storage.items()) if region != "b")
    remark = carry_out(order(storage, MoverTask.CLEAN, storage=urls), Unhurried())
    assert remark == ("what was copied of logs.clicks to b, if anything, stays: nothing says where that stores tables")


def test_a_process_that_is_killed_again_and_again_still_gets_there(storage: dict[str, Path]) -> None:
    slow = beat(3e6)
    for token in range(3):
        with mover_process(order(storage, token=token).as_json(), slow) as (process, _, output):
            while "copied" not in output.readline():
                pass
            process.kill()
        there = {name: content for name, content in files(storage, "b").items() if not name.startswith(OWN_PREFIX)}
        assert there.items() <= CONTENTS.items()
    for task in (MoverTask.COPY, MoverTask.VERIFY, MoverTask.SETTLE):
        carry_out(order(storage, task, token=9), Unhurried())
    assert files(storage, "b") == files(storage, "a") == CONTENTS


def named(*names: str) -> tuple[Partition, ...]:
    return tuple(
        Partition(name, len(CONTENTS[name]), f"sha256:{hashlib.sha256(CONTENTS[name]).hexdigest()}") for name in names
    )


def test_some_partitions_alone_and_then_the_rest(storage: dict[str, Path]) -> None:
    first, second, third = sorted(CONTENTS)
    size = len(CONTENTS[third])
    some = order(storage, partitions=named(third), parts=(OrderedPart(("a", "b"), size),))
    progress = Unhurried()
    carry_out(some, progress)
    carry_out(replace(some, task=MoverTask.VERIFY), Unhurried())
    carry_out(replace(some, task=MoverTask.SETTLE), Unhurried())
    assert files(storage, "b") == {third: CONTENTS[third]}
    assert progress.copied == size
    rest = order(storage, partitions=named(first, second, third), parts=(OrderedPart(("a", "b"), SIZE - size),))
    rest = replace(rest, migration=8)
    progress = Unhurried()
    carry_out(rest, progress)
    # What was there is none of the bytes that are copied.
    assert progress.copied == SIZE - size
    carry_out(replace(rest, task=MoverTask.VERIFY), Unhurried())
    # Given up, it leaves what was there before it.
    carry_out(replace(rest, task=MoverTask.CLEAN), Unhurried())
    assert files(storage, "b") == {third: CONTENTS[third]}


def test_what_a_try_copied_that_is_not_wanted_any_more_goes(storage: dict[str, Path]) -> None:
    """Newer partitions came meanwhile: of the newest two only one is what it was."""
    first, second, third = sorted(CONTENTS)

    def newest(*names: str, **changes: object) -> MoverOrder:
        size = sum(len(CONTENTS[name]) for name in names)
        parts = (OrderedPart(("a", "b"), size),)
        return replace(order(storage, partitions=named(*names), parts=parts), **changes)  # type: ignore[arg-type]  # fields by name

    carry_out(newest(first, second), Unhurried())
    carry_out(newest(second, third, token=2), Unhurried())
    carry_out(newest(second, third, task=MoverTask.VERIFY), Unhurried())
    carry_out(newest(second, third, task=MoverTask.SETTLE), Unhurried())
    assert files(storage, "b") == {name: CONTENTS[name] for name in (second, third)}
    # What another migration brought is not its to remove.
    carry_out(newest(first, migration=8), Unhurried())
    assert files(storage, "b").keys() > CONTENTS.keys()


def test_a_partition_that_is_damaged_is_not_verified(storage: dict[str, Path]) -> None:
    name = sorted(CONTENTS)[2]
    some = order(storage, partitions=named(name), parts=(OrderedPart(("a", "b"), len(CONTENTS[name])),))
    carry_out(some, Unhurried())
    (storage["b"] / "logs.clicks" / name).write_bytes(b"x" * len(CONTENTS[name]))
    with pytest.raises(MoverProblem, match="with checksum"):
        carry_out(replace(some, task=MoverTask.VERIFY), Unhurried())


_PATH_PARTS = st.lists(
    st.text("ab.", min_size=1, max_size=2).filter(lambda text: text.strip(".")), min_size=1, max_size=3
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_PATH_PARTS.map("/".join), min_size=2, max_size=5, unique=True))
def test_never_a_file_of_another_table(names: list[str]) -> None:
    """Of tables none of which lies in the folder of another: such ones the catalog refuses."""
    names = [name for name in names if not any(name.startswith(other + "/") for other in names)]
    root = f"memory://never{next(_ROOTS)}"
    storage = tuple((region, f"{root}/{region}") for region in "ab")
    source, target = (RegionFolder(region, url, Unhurried()) for region, url in storage)
    for name in names:
        for folder in (source, target):
            folder.files.makedirs(folder.path(name), exist_ok=True)
            folder.write_text(name, "part", name)
    gone = names[0]
    carry_out(MoverOrder(MoverTask.DELETE, 7, 1, gone, "b", "a", storage, (), (), len(gone)), Unhurried())
    for name in names:
        assert source.read_text(name, "part") == ("" if name == gone else name)
        assert target.read_text(name, "part") == name


_ROOTS = itertools.count()
