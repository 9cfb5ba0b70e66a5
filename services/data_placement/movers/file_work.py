"""The tasks of a migration on real files; each can be stopped at any point and done again.

A partition is written under a name of its own, noted with size and checksum, and only then renamed: whatever has its
right name is whole, and is not copied again. Verifying reads what the target really has. Deleting comes last, and only
what the target has too is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from services.data_placement.movers.orders import MoverOrder, MoverTask, Partition, paths_of
from services.data_placement.movers.region_folders import (
    DEFAULT_ALGORITHM,
    Charge,
    MoverProblem,
    RegionFolder,
    copy_file,
    mark_name,
    part_name,
)
from services.data_placement.movers.storage_failed import StorageFailed


class Progress(Charge, Protocol):
    """Hears how far a copy is, and says when it may go on."""

    def passed(self, part: int, size: int) -> None:
        """So many bytes of a part have been read; may wait, so that no more bandwidth is used than granted."""
        ...

    def there(self, size: int) -> None:
        """So many bytes are at the target already."""
        ...


def carry_out(order: MoverOrder, progress: Progress) -> str:
    """Does the task; returns a remark, mostly an empty one. Raises MoverProblem with a sentence when it cannot be done."""
    folders = {region: RegionFolder(region, url, progress) for region, url in order.storage}
    if order.task is MoverTask.CLEAN and order.target not in folders:
        # Nothing was written there, or nothing says any more where.
        return f"what was copied of {order.table} to {order.target}, if anything, stays: nothing says where that stores tables"
    needed = {order.source, order.target, *(region for part in order.parts for region in part.path)}
    if unknown := sorted(needed - folders.keys()):
        raise MoverProblem(f"nothing says where region {unknown[0]} stores tables: data.regions.{unknown[0]}.storage")
    works = {
        MoverTask.COPY: _copy,
        MoverTask.VERIFY: _verify,
        MoverTask.SETTLE: _settle,
        MoverTask.CLEAN: _clean,
        MoverTask.DELETE: _delete,
    }
    try:
        return works[order.task](order, folders, progress)
    except (StorageFailed, FileNotFoundError) as error:
        raise MoverProblem(f"{order.task} of {order.table} to {order.target}: {error}") from error


def _copy(order: MoverOrder, folders: Mapping[str, RegionFolder], progress: Progress) -> str:
    if not order.parts:
        return ""  # the target has a complete copy already
    for region in sorted({region for part in order.parts for region in part.path}):
        folders[region].require_bucket()
    partitions = _partitions(order, folders)
    _remove_begun(order, folders)
    _remove_unwanted(order, folders[order.target])
    source = folders[order.parts[0].path[0]]
    missing = [each for each in partitions if not _is_there(source, folders[order.target], order, each, progress)]
    for partition, path in zip(missing, paths_of(missing, order.parts), strict=True):
        place = next(number for number, part in enumerate(order.parts) if part.path == path)
        _copy_partition(order, folders, partition, path, partial(progress.passed, place))
    return ""


def _remove_begun(order: MoverOrder, folders: Mapping[str, RegionFolder]) -> None:
    """What earlier tries left half written: it takes room that nobody has reserved, and nobody finishes it."""
    for region in sorted({region for part in order.parts for region in part.path[1:]}):
        for name in folders[region].own_files(order.table, order.migration):
            if name.startswith(part_name(order.migration)):
                folders[region].remove(order.table, name)


def _remove_unwanted(order: MoverOrder, target: RegionFolder) -> None:
    """What earlier tries copied that is none of the order's partitions any more, for the table has grown: nobody counts it."""
    wanted = {partition.name for partition in order.partitions}
    prefix = mark_name(order.migration)
    for mark in target.own_files(order.table, order.migration) if wanted else ():
        if mark.startswith(prefix) and mark.removeprefix(prefix) not in wanted:
            target.remove(order.table, mark.removeprefix(prefix))
            target.remove(order.table, mark)


def _partitions(order: MoverOrder, folders: Mapping[str, RegionFolder]) -> Sequence[Partition]:
    """Those of the catalog, or where it knows none, those of the first source."""
    if order.partitions:
        return order.partitions
    source = folders[order.parts[0].path[0] if order.parts else order.source]
    found = source.partitions(order.table)
    if not found and order.size_bytes:
        raise MoverProblem(f"the storage of region {source.region} has no file of {order.table}")
    size = sum(partition.size_bytes for partition in found)
    if size != order.size_bytes:
        raise MoverProblem(
            f"the files of {order.table} in region {source.region} have {size} bytes, not {order.size_bytes} as the catalog"
            " says"
        )
    return found


def _is_there(
    source: RegionFolder, target: RegionFolder, order: MoverOrder, partition: Partition, progress: Progress
) -> bool:
    """Whether it is whole already: as long as it should be, and noted as that or the same as the source."""
    if target.size(order.table, partition.name) != partition.size_bytes:
        return False
    mark = target.read_text(order.table, mark_name(order.migration, partition.name))
    if mark:
        is_whole = _noted(mark)[0] == partition.size_bytes
        if is_whole:
            progress.there(partition.size_bytes)
        return is_whole
    # A copy that is behind, or one of some partitions, has it: it is none of the bytes that are to be copied. Without a note, so it stays when this migration is given up.
    algorithm = _algorithm(partition)
    known = partition.checksum or source.checksum(order.table, partition.name, algorithm)
    return target.checksum(order.table, partition.name, algorithm) == known


def _copy_partition(
    order: MoverOrder,
    folders: Mapping[str, RegionFolder],
    partition: Partition,
    path: Sequence[str],
    passed: Callable[[int], None],
) -> None:
    algorithm = _algorithm(partition)
    source, target = folders[path[0]], folders[order.target]
    if source.size(order.table, partition.name) is None:
        raise MoverProblem(f"the storage of region {source.region} has no file {partition.name} of {order.table}")
    part = part_name(order.migration, order.token, partition.name)
    source_name, checksum = partition.name, ""
    version = source.version(order.table, partition.name)
    for number, region in enumerate(path[1:]):
        # Over a third region: there it stands under the movers' own name, and goes when it has been passed on.
        count = passed if number == 0 else _not_counted
        try:
            read, found = copy_file(source, source_name, folders[region], part, order.table, algorithm, count)
        except StorageFailed:
            # Until the next try it would only fill what may be full already.
            with contextlib.suppress(StorageFailed):
                folders[region].remove(order.table, part)
            raise
        if number == 0:
            checksum = found
            _check_source(order, source, partition, read, found)
            if source.version(order.table, partition.name) not in ("", version):
                raise MoverProblem(
                    f"{partition.name} of {order.table} in region {source.region} changed while it was copied"
                )
        elif found != checksum:
            raise MoverProblem(f"{partition.name} of {order.table} was damaged in region {source.region}, on the way")
        if number > 0:
            source.remove(order.table, part)
            source.remove_folder_if_empty(order.table)
        source, source_name = folders[region], part
    target.write_text(order.table, mark_name(order.migration, partition.name), f"{partition.size_bytes} {checksum}")
    target.rename(order.table, part, partition.name)


def _check_source(order: MoverOrder, source: RegionFolder, partition: Partition, read: int, checksum: str) -> None:
    """Before anything gets its name: the source must be what the catalog says."""
    what = f"{partition.name} of {order.table} in region {source.region}"
    if read != partition.size_bytes:
        raise MoverProblem(f"{what} has {read} bytes, not {partition.size_bytes}")
    if partition.checksum and checksum != partition.checksum:
        raise MoverProblem(f"{what} has checksum {checksum}, not {partition.checksum} as the catalog says")


def _verify(order: MoverOrder, folders: Mapping[str, RegionFolder], _progress: Progress) -> str:
    target = folders[order.target]
    for partition in _partitions(order, folders):
        mark = target.read_text(order.table, mark_name(order.migration, partition.name))
        if not mark and target.size(order.table, partition.name) is not None:
            # A copy that was there before: it must be what the catalog says, or what the source has.
            source = folders[order.source]
            algorithm = _algorithm(partition)
            checksum = partition.checksum or source.checksum(order.table, partition.name, algorithm)
            mark = f"{partition.size_bytes} {checksum}"
        _verify_partition(order, target, partition, mark)
    return ""


def _verify_partition(order: MoverOrder, target: RegionFolder, partition: Partition, mark: str) -> None:
    what = f"{partition.name} of {order.table} in region {target.region}"
    size = target.size(order.table, partition.name)
    if not mark or size is None:
        raise MoverProblem(f"{what} is not there; it is copied again")
    noted_size, noted = _noted(mark)
    found = target.checksum(order.table, partition.name, noted.partition(":")[0])
    if size != noted_size or found != noted:
        target.remove(order.table, mark_name(order.migration, partition.name))
        raise MoverProblem(f"{what} has {size} bytes with checksum {found}, not {noted_size} with {noted}")


def _settle(order: MoverOrder, folders: Mapping[str, RegionFolder], _progress: Progress) -> str:
    # In all regions: it may have gone over others before. One that cannot be reached keeps nothing in the others.
    failed: StorageFailed | None = None
    for _, folder in sorted(folders.items()):
        try:
            own = folder.own_files(order.table, order.migration)
            for name in own:
                folder.remove(order.table, name)
            if own:
                folder.remove_folder_if_empty(order.table)
        except StorageFailed as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return ""


def _clean(order: MoverOrder, folders: Mapping[str, RegionFolder], progress: Progress) -> str:
    """What has a note was written by this migration, and goes; the note goes last."""
    target = folders[order.target]
    prefix = mark_name(order.migration)
    for mark in target.own_files(order.table, order.migration):
        if mark.startswith(prefix):
            target.remove(order.table, mark.removeprefix(prefix))
    return _settle(order, folders, progress)


def _delete(order: MoverOrder, folders: Mapping[str, RegionFolder], _progress: Progress) -> str:
    source, target = folders[order.source], folders[order.target]
    kept: list[str] = []
    for partition in source.partitions(order.table):
        if target.size(order.table, partition.name) == partition.size_bytes:
            source.remove(order.table, partition.name)
        else:
            kept.append(partition.name)
    source.remove_folder_if_empty(order.table)
    if not kept:
        return ""
    shown = ", ".join(kept[:5]) + (" and others" if len(kept) > 5 else "")
    return f"files of {order.table} stay in {source.region}, for {target.region} does not have them: {shown}"


def _algorithm(partition: Partition) -> str:
    """Of the catalog's checksum, where it has one that can be computed here."""
    algorithm = partition.checksum.partition(":")[0] if ":" in partition.checksum else DEFAULT_ALGORITHM
    if algorithm not in hashlib.algorithms_available:
        raise MoverProblem(f"partition {partition.name} has a checksum of an unknown kind, {partition.checksum}")
    return algorithm


def _noted(mark: str) -> tuple[int, str]:
    size, _, checksum = mark.partition(" ")
    return int(size), checksum


def _not_counted(_size: int) -> None:
    return None
