import json
import math
import pickle
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from topmast.training.state_format import ARRAYS_FILE, TREE_FILE, State, read_state, write_state

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8), st.binary(max_size=8)
)
ARRAYS = arrays.arrays(
    st.sampled_from([np.dtype(kind) for kind in ("float64", "float32", "int64", "uint8", "bool", "complex64")]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
KEYS = st.one_of(st.text(max_size=4), st.integers(), st.tuples(st.integers(), st.text(max_size=2)), st.just("$"))
STATES = st.recursive(
    st.one_of(SCALARS, ARRAYS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.frozensets(st.integers(), max_size=3),
        st.sets(st.text(max_size=3), max_size=3),
    ),
    max_leaves=8,
)


def through_files(state: State) -> State:
    with TemporaryDirectory() as directory:
        write_state(state, Path(directory))
        return read_state(Path(directory))


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            assert_same(one[name], other[name])
    else:
        assert one == other


@given(STATES)
def test_never_is_anything_changed_on_its_way_through_the_files(state: State) -> None:
    assert_same(state, through_files(state))


def test_generators_go_on_where_they_were() -> None:
    numpy_generator, python_generator = np.random.default_rng(7), random.Random(7)
    numpy_generator.normal(size=3)
    python_generator.random()
    saved = through_files({"numpy": numpy_generator.bit_generator.state, "python": python_generator.getstate()})
    expected = numpy_generator.normal(size=5), python_generator.random()
    numpy_generator.bit_generator.state = saved["numpy"]
    python_generator.setstate(saved["python"])
    np.testing.assert_array_equal(numpy_generator.normal(size=5), expected[0])
    assert python_generator.random() == expected[1]


def test_numpy_scalars_stay_numpy_scalars() -> None:
    loss = through_files({"loss": np.float32(0.1), "step": np.int64(3)})
    assert (type(loss["loss"]), type(loss["step"])) == (np.float32, np.int64)


def test_what_is_not_a_number_stays_so() -> None:
    nan, infinite = through_files([math.nan, -math.inf])
    assert math.isnan(nan)
    assert infinite == -math.inf


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"model": [1, object()]}, r"state\['model'\]\[1\] is a builtins.object"),
        ({"names": np.array([object()])}, r"state\['names'\] is an array of Python objects"),
        ((1, {"f": print}), r"state\[1\]\['f'\] is a builtins.builtin_function_or_method"),
        (np.random.default_rng(1), r"bit_generator\.state"),
    ],
    ids=["object", "object array", "function", "generator"],
)
def test_what_cannot_be_kept_is_named(state: State, place: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=place):
        write_state(state, tmp_path)


def test_never_is_code_run_that_came_with_a_checkpoint(tmp_path: Path) -> None:
    class Explosive:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    write_state({"weights": np.zeros(2)}, tmp_path)
    np.savez(tmp_path / ARRAYS_FILE, a0=np.array([Explosive()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        read_state(tmp_path)
    (tmp_path / ARRAYS_FILE).write_bytes(pickle.dumps(Explosive()))
    with pytest.raises(ValueError, match="pickle"):
        read_state(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_tag_from_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / TREE_FILE).write_text(json.dumps({"$": "quaternion", "items": []}))
    with pytest.raises(ValueError, match="quaternion"):
        read_state(tmp_path)


def test_tensors_come_back_on_the_cpu_with_their_values() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    random_state = torch.get_rng_state()
    saved = through_files({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random_state})
    fresh = torch.nn.Linear(3, 2)
    fresh.load_state_dict(saved["model"])
    torch.optim.Adam(fresh.parameters()).load_state_dict(saved["optimizer"])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True))
    assert torch.equal(saved["random"], random_state)
