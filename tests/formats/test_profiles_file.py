"""Sensitivity profiles from and to a file."""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.tuning.demand import demand_of
from domain.sensitivity import AmountsPerGpu, SensitivityProfile
from formats.problems import FormatError
from formats.profiles_file import read_profiles, unknown_model, write_profiles
from tests.cluster_manager.tuning.worlds import SHARE
from tests.domain.random_profiles import profiles

TRACES = Path(os.environ.get("TOPMAST_TRACES", "/nowhere"))
HEADER = "model,cpus_per_gpu,memory_gb_per_gpu,relative_speed\n"


def test_columns_and_lines_may_stand_in_any_order(tmp_path: Path) -> None:
    text = "note,relative_speed,model,memory_gb_per_gpu,cpus_per_gpu\n,2,m,62.5,6\n\nx,1,m,62.5,3\n,1,l,20,1\n"
    plain, packed = tmp_path / "p.csv", tmp_path / "p.csv.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    expected = {
        "l": SensitivityProfile((1.0,), (20.0,), ((1.0,),)),
        "m": SensitivityProfile((3.0, 6.0), (62.5,), ((1.0,), (2.0,))),
    }
    assert read_profiles(plain) == read_profiles(packed) == expected
    assert list(read_profiles(plain)) == ["l", "m"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "",
            ["line 1: has no column model, cpus_per_gpu, memory_gb_per_gpu, relative_speed; the first line must name"],
        ),
        ("model,cpus_per_gpu\n", ["line 1: has no column memory_gb_per_gpu, relative_speed; the first line must name"]),
        (HEADER, ["has no profiles; give each model at least one line"]),
        (HEADER + "m,0,62.5,1\n", ["line 2, cpus_per_gpu: must be more than 0"]),
        (HEADER + "m,1,nan,1\n", ["line 2, memory_gb_per_gpu: must be a number", "not 'nan'"]),
        (HEADER + "m,1,62.5\n", ["line 2, relative_speed: must be a number", "not ''"]),
        (HEADER + "m,1,62.5,-1\n", ["line 2, relative_speed: must be a number"]),
        (HEADER + "m,1,62.5,0\n", ["line 2, relative_speed: must be more than 0"]),
        (HEADER + ",1,62.5,1\n", ["line 2, model: must be a name"]),
        (
            HEADER + "m,1,20,1\nm,1,20,2\n",
            ["line 3, model m: 1 CPUs and 20 GB per GPU stands on line 2 already; give each point once"],
        ),
        (
            HEADER + "m,1,20,1\nm,2,40,2\n",
            [
                "model m: has no line for 1 CPUs and 40 GB per GPU; give one for every amount of CPUs with every amount",
                "model m: has no line for 2 CPUs and 20 GB per GPU",
            ],
        ),
        (
            HEADER + "m,1,20,1\nm,2,20,0.5\nn,1,20,2\nn,1,40,1\n",
            [
                "line 3, model m: has speed 0.5, less than 1 on line 2 with fewer resources; more CPUs or memory never",
                "line 5, model n: has speed 1, less than 2 on line 4 with fewer resources",
            ],
        ),
        (HEADER + 'm,1,20,1\n"m,2\n', ["is not CSV"]),
    ],
)
def test_what_makes_no_sense_is_refused_by_line(tmp_path: Path, text: str, messages: list[str]) -> None:
    file = tmp_path / "profiles.csv"
    file.write_text(text)
    with pytest.raises(FormatError) as refused:
        read_profiles(file)
    assert str(file) in str(refused.value)
    for message in messages:
        assert message in str(refused.value)


def test_a_model_without_a_profile_gets_a_suggestion() -> None:
    assert unknown_model("resnet18", ["res18", "m5"]) == ("'resnet18' has no sensitivity profile; did you mean res18?")
    assert unknown_model("xyz", []) == "'xyz' has no sensitivity profile; there is no profile at all"


@given(st.dictionaries(st.sampled_from(["a", "b", "c-1"]), profiles(), min_size=1))
def test_what_is_written_is_read_back(known: dict[str, SensitivityProfile]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("p.csv", "p.csv.gz"):
            file = Path(folder) / name
            write_profiles(file, known)
            assert read_profiles(file) == known


@pytest.mark.skipif(not (TRACES / "synergy_profiles.csv").exists(), reason="the profiles are not on this machine")
def test_the_published_profiles_have_the_published_best_demands(tmp_path: Path) -> None:
    known = read_profiles(TRACES / "synergy_profiles.csv")
    assert len(known) == 12
    share = AmountsPerGpu(3.0, 62.5)
    best = {model: demand_of(profile, SHARE).best.per_gpu for model, profile in known.items()}
    assert best["alexnet"] == best["shufflenet"] == AmountsPerGpu(12.0, 125.0)
    assert best["m5"] == AmountsPerGpu(6.0, 187.5)
    assert best["res18"] == AmountsPerGpu(9.0, 62.5)
    assert best["gnmt"] == pytest.approx(AmountsPerGpu(1.0, 20.83), rel=1e-3)
    assert {model: profile.speed(best[model], share) for model, profile in known.items()} == pytest.approx(
        {
            "alexnet": 2.94,
            "bert": 1.0,
            "deepspeech": 1.0,
            "gnmt": 1.0,
            "lstm": 1.0,
            "m5": 2.5,
            "mobilenet": 1.55,
            "res18": 2.4,
            "res50": 1.15,
            "shufflenet": 2.89,
            "transformer": 1.0,
            "vae": 1.0,
        }
    )
    again = tmp_path / "again.csv"
    write_profiles(again, known)
    assert read_profiles(again) == known
