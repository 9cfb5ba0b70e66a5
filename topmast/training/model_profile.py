"""What a model is made of: the size of its largest tensor and of all together (Tiresias §3.3).

Aggregating one huge tensor between machines is slower than aggregating many small ones: Topmast places jobs whose largest tensor
dominates the model on as few machines as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_MIB = 2.0**20


class ModelSizes(NamedTuple):
    """In MiB; the largest tensor over the model is its skew."""

    largest_tensor_mib: float
    model_mib: float


def model_sizes(model: Any) -> ModelSizes:
    """The sizes of a PyTorch module's parameters, or of the arrays and tensors in a dict (also nested, with lists and tuples).

    Raises TypeError for anything else, ValueError where there is no tensor of any size.
    """
    sizes = [size for size in _tensor_bytes(model, "model") if size > 0]
    if not sizes:
        raise ValueError("the model has no tensors, or only empty ones: there is nothing to profile")
    return ModelSizes(max(sizes) / _MIB, sum(sizes) / _MIB)


def _tensor_bytes(value: Any, place: str) -> Iterator[int]:
    """Bytes of each tensor. Modules, tensors and arrays are known by what they offer: neither library is needed here."""
    if hasattr(value, "named_parameters"):
        # Parameters that a module uses in two places come once; buffers are not aggregated.
        yield from (_bytes_of(parameter, f"{place}.{name}") for name, parameter in value.named_parameters())
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensor_bytes(part, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            yield from _tensor_bytes(part, f"{place}[{position}]")
    elif value is not None and not isinstance(value, bool | int | float | complex | str | bytes):
        yield _bytes_of(value, place)


def _bytes_of(tensor: Any, place: str) -> int:
    if hasattr(tensor, "numel") and hasattr(tensor, "element_size"):
        return int(tensor.numel() * tensor.element_size())
    if hasattr(tensor, "nbytes"):
        return int(tensor.nbytes)
    raise TypeError(f"{place} is a {type(tensor).__name__}: give a PyTorch module, or arrays and tensors by name")
