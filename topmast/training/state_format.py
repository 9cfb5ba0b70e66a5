"""Turns the state of a training program into plain files and back, without pickle.

Python values become JSON, NumPy arrays one `.npz` file, PyTorch tensors one file of `torch.save` that is read with
`weights_only=True`. Reading a checkpoint therefore never runs code that came with it. NumPy and PyTorch are only
needed for states that have arrays or tensors in them.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, TypeAlias
from zipfile import BadZipFile

if TYPE_CHECKING:
    import numpy as np

State: TypeAlias = Any
"""None, booleans, numbers, strings, bytes, NumPy arrays and scalars, tensors; lists, tuples, sets and dicts of these."""

Tree: TypeAlias = "bool | int | float | str | list[Tree] | dict[str, Tree] | None"

TREE_FILE = "state.json"
ARRAYS_FILE = "arrays.npz"
TENSORS_FILE = "tensors.pt"

_TAG = "$"

_SIGNS_OF_DAMAGE = (BadZipFile, EOFError, KeyError, RuntimeError, UnpicklingError)
"""What NumPy, PyTorch and zipfile raise for files that are cut off or scrambled, beside OSError and ValueError."""


def write_state(state: State, directory: Path) -> None:
    """Writes the files of a state into an empty directory, down to the disk.

    Raises TypeError, naming the place in the state, when something in it cannot be kept.
    """
    writer = _Writer()
    tree = writer.tree_of(state, "state")
    if writer.arrays:
        numpy = _loaded("numpy")
        _write(directory / ARRAYS_FILE, lambda stream: numpy.savez(stream, **writer.arrays))
    if writer.tensors:
        torch = _loaded("torch")
        _write(directory / TENSORS_FILE, lambda stream: torch.save(writer.tensors, stream))
    content = json.dumps(tree).encode()
    _write(directory / TREE_FILE, lambda stream: stream.write(content))


def read_state(directory: Path) -> State:
    """The state that was written there. Tensors are on the CPU, wherever they were.

    Raises OSError or ValueError when files are missing or damaged, ImportError when NumPy or PyTorch would be needed
    and is not installed.
    """
    tree: Tree = json.loads((directory / TREE_FILE).read_text(encoding="utf-8"))
    try:
        return _state_of(tree, _read_arrays(directory), _read_tensors(directory))
    except _SIGNS_OF_DAMAGE as error:
        raise ValueError(f"the state in {directory} is damaged: {error}") from error


def _read_arrays(directory: Path) -> dict[str, Any]:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    if (directory / ARRAYS_FILE).exists():
        import numpy as np  # only where there are arrays

        # Opened here, because NumPy leaves the file of a damaged archive open.
        with (directory / ARRAYS_FILE).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    return arrays


def _read_tensors(directory: Path) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    if (directory / TENSORS_FILE).exists():
        import torch  # only where there are tensors

        tensors = torch.load(directory / TENSORS_FILE, map_location="cpu", weights_only=True)
    return tensors


class _Writer:
    """Takes arrays and tensors out of a state; what remains is a tree of JSON values."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}

    def tree_of(self, value: State, place: str) -> Tree:
        if value is None or type(value) in {bool, int, float, str}:
            plain: Tree = value
            return plain
        if isinstance(value, dict):
            return self._dict(value, place)
        if isinstance(value, list):
            return [self.tree_of(item, f"{place}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, tuple):
            return {_TAG: "tuple", "items": [self.tree_of(item, f"{place}[{i}]") for i, item in enumerate(value)]}
        if isinstance(value, set | frozenset):
            kind = "set" if isinstance(value, set) else "frozenset"
            return {_TAG: kind, "items": [self.tree_of(item, f"{place}{{}}") for item in value]}
        if isinstance(value, bytes):
            return {_TAG: "bytes", "base64": base64.b64encode(value).decode("ascii")}
        return self._array_or_tensor(value, place)

    def _dict(self, value: dict[Any, Any], place: str) -> Tree:
        if all(type(key) is str for key in value) and _TAG not in value:
            return {key: self.tree_of(item, f"{place}[{key!r}]") for key, item in value.items()}
        pairs: list[Tree] = [
            [self.tree_of(key, f"a key of {place}"), self.tree_of(item, f"{place}[{key!r}]")]
            for key, item in value.items()
        ]
        return {_TAG: "dict", "items": pairs}

    def _array_or_tensor(self, value: Any, place: str) -> Tree:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            if value.dtype.hasobject:
                raise TypeError(f"{place} is an array of Python objects; save their values as lists or numbers")
            name = f"a{len(self.arrays)}"
            self.arrays[name] = value
            return {_TAG: "array" if isinstance(value, numpy.ndarray) else "scalar", "name": name}
        if torch is not None and isinstance(value, torch.Tensor):
            name = f"t{len(self.tensors)}"
            self.tensors[name] = value.detach()
            return {_TAG: "tensor", "name": name}
        kind = type(value)
        raise TypeError(
            f"{place} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold; "
            "save the values in it (for example its state_dict(), or a generator's bit_generator.state)"
        )


def _state_of(tree: Tree, arrays: dict[str, Any], tensors: dict[str, Any]) -> State:
    if isinstance(tree, list):
        return [_state_of(item, arrays, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if _TAG not in tree:
        return {key: _state_of(item, arrays, tensors) for key, item in tree.items()}
    tag = tree[_TAG]
    if tag == "bytes":
        return base64.b64decode(str(tree["base64"]))
    if tag == "tensor":
        return tensors[str(tree["name"])]
    if tag in {"array", "scalar"}:
        array = arrays[str(tree["name"])]
        return array if tag == "array" else array[()]
    items = tree.get("items")
    collections: dict[Tree, Callable[[list[State]], State]] = {
        "dict": dict,
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
    }
    collect = collections.get(tag) if isinstance(tag, str) else None
    if collect is None or not isinstance(items, list):
        raise ValueError(f"a state holds {tag!r}, which this version cannot read")
    return collect([_state_of(item, arrays, tensors) for item in items])


def _loaded(module: str) -> ModuleType:
    """The module from which something in the state came: it is there already."""
    return sys.modules[module]


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    with path.open("wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
