from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topmast.training.model_profile import ModelSizes, model_sizes

MIB = 2**20


class Parameter:
    """What a PyTorch tensor offers, as far as its size goes."""

    def __init__(self, elements: int, bytes_each: int) -> None:
        self._elements, self._bytes_each = elements, bytes_each

    def numel(self) -> int:
        return self._elements

    def element_size(self) -> int:
        return self._bytes_each


class Module:
    """What a PyTorch module offers."""

    def __init__(self, **parameters: object) -> None:
        self._parameters = parameters

    def named_parameters(self) -> Iterator[tuple[str, object]]:
        yield from self._parameters.items()


def test_of_arrays_by_name() -> None:
    weights = {"dense": np.zeros((1024, 768), np.float32), "bias": np.zeros(1024 * 256, np.float32)}
    assert model_sizes(weights) == ModelSizes(largest_tensor_mib=3.0, model_mib=4.0)


def test_of_a_module_by_its_parameters() -> None:
    assert model_sizes(Module(dense=Parameter(MIB, 4), half=Parameter(MIB, 2))) == ModelSizes(4.0, 6.0)


def test_of_a_checkpoint_with_other_things_in_it() -> None:
    state = {"epoch": 3, "name": "vgg", "layers": [np.zeros(MIB, np.int8), (Parameter(MIB, 3), None)], "rate": 0.1}
    assert model_sizes(state) == ModelSizes(3.0, 4.0)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_never_a_skew_out_of_0_to_1(lengths: list[int]) -> None:
    largest, whole = model_sizes({f"t{number}": np.zeros(length) for number, length in enumerate(lengths)})
    assert 0 < largest / whole <= 1
    assert largest / whole == pytest.approx(max(lengths) / sum(lengths))


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ({"a": {1, 2}}, TypeError, r"model\['a'\] is a set"),
        (object(), TypeError, "model is a object: give a PyTorch module, or arrays and tensors by name"),
        (Module(weight=object()), TypeError, r"model\.weight is a object"),
        ({}, ValueError, "has no tensors"),
        ({"a": np.zeros(0)}, ValueError, "has no tensors, or only empty ones"),
    ],
)
def test_says_what_it_cannot_measure(model: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        model_sizes(model)


def test_of_a_real_pytorch_module() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    shared = torch.nn.Linear(256, 1024, bias=False)
    model = torch.nn.Sequential(shared, shared, torch.nn.Linear(1024, 256, bias=False))
    assert model_sizes(model) == ModelSizes(1.0, 2.0)
    assert model_sizes(model.state_dict()).largest_tensor_mib == 1.0
