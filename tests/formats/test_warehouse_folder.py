from pathlib import Path

import numpy as np
import pytest

from data_placement.warehouse_generator import generate_warehouse
from formats.problems import FormatError
from formats.warehouse_folder import read_warehouse, write_warehouse

FILES = {
    "regions": "region,storage_bytes\neast,1000\nwest,2000\n",
    "supply": "region,gpu_model,gpu_hours\neast,A100,10\nwest,A100,5\n",
    "tables": "table,size_bytes,home,replicas\nclicks,100,east,west\nviews,50,west,\n",
    "jobs": "job,kind,gpu_model,priority,gpu_hours,cpu_hours,application\n"
    "rank,training,A100,3,8,0,\nreport,analytics,,1,0,4,daily\n",
    "reads": "job,table\nrank,clicks\nrank,views\nreport,views\n",
    "quotas": "application,region,cpu_hours\ndaily,east,10\ndaily,west,10\n",
}


def folder_with(path: Path, **changed: str | None) -> Path:
    for name, text in {**FILES, **changed}.items():
        if text is not None:
            (path / f"{name}.csv").write_text(text)
    return path


def test_csv_files_make_a_warehouse(tmp_path: Path) -> None:
    warehouse = read_warehouse(folder_with(tmp_path))
    assert warehouse.regions.names == ("east", "west")
    assert list(warehouse.tables.names) == ["clicks", "views"]
    assert warehouse.tables.home.tolist() == [0, 1]
    assert warehouse.tables.replicas.tolist() == [0b10, 0]
    assert warehouse.jobs.priorities == (1, 3)
    assert warehouse.jobs.tables.tolist() == [0, 1, 1]


def test_failures_and_spare_gpus_of_regions_are_read_and_written_again(tmp_path: Path) -> None:
    folder = folder_with(
        tmp_path,
        regions="region,storage_bytes,spare_gpu_share\neast,1000,0.25\nwest,2000,\n",
        failures="region,other,probability\neast,west,0.5\n",
    )
    regions = read_warehouse(folder).regions
    np.testing.assert_array_equal(regions.correlated_failures, [[0, 0.5], [0.5, 0]])
    np.testing.assert_array_equal(regions.spare_gpu_share, [0.25, np.nan])
    write_warehouse(tmp_path / "again", read_warehouse(folder))
    again = read_warehouse(tmp_path / "again").regions
    np.testing.assert_array_equal(again.correlated_failures, regions.correlated_failures)
    np.testing.assert_array_equal(again.spare_gpu_share, regions.spare_gpu_share)
    assert (
        read_warehouse(folder_with(tmp_path, regions="region,storage_bytes\neast,1\nwest,2\n")).regions.spare_gpu_share
        is None
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = generate_warehouse(300, 4, np.random.default_rng(2))
    write_warehouse(tmp_path / "here", made)
    read = read_warehouse(tmp_path / "here")
    assert list(read.tables.names) == list(made.tables.names)
    for part in ("tables", "jobs", "regions"):
        before, after = getattr(made, part), getattr(read, part)
        for name in before.__dataclass_fields__:
            if isinstance(getattr(before, name), np.ndarray):
                np.testing.assert_array_equal(getattr(after, name), getattr(before, name), err_msg=name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"regions": None},
            "regions.parquet: is missing; make it, or regions.csv, with the columns region, storage_bytes",
        ),
        ({"tables": "table,home\nclicks,east\n"}, "tables.csv: has no column size_bytes"),
        (
            {"failures": "region,other,probability\neast,mars,0.5\n"},
            "failures.csv row 1, other: there is no region 'mars'",
        ),
        (
            {"failures": "region,other,probability\neast,west,1.5\n"},
            "failures.csv row 1, probability: must be 0 or greater and at most 1, not 1.5",
        ),
        (
            {"regions": "region,storage_bytes,spare_gpu_share\neast,1000,7\nwest,2000,\n"},
            "regions.csv row 1, spare_gpu_share: must be 0 or greater and at most 1, not 7",
        ),
        (
            {"tables": "table,size_bytes,home\nclicks,-5,east\n"},
            "tables.csv row 1, size_bytes: must be 0 or greater, not -5",
        ),
        ({"tables": "table,size_bytes,home\nclicks,nan,east\n"}, "size_bytes: must be 0 or greater, not nan"),
        (
            {"tables": "table,size_bytes,home\nclicks,1,eats\n"},
            "row 1, home: there is no region 'eats'; did you mean east?",
        ),
        (
            {"tables": "table,size_bytes,home\nclicks,1,east\nviews,1,east\nclicks,2,west\n"},
            "tables.csv row 3, table: the table 'clicks' is there twice; keep one row",
        ),
        (
            {"reads": "job,table\nrank,clicsk\n"},
            "reads.csv row 1, table: there is no table 'clicsk'; did you mean clicks?",
        ),
        ({"reads": "job,table\nrnak,clicks\n"}, "reads.csv row 1, job: there is no job 'rnak'; did you mean rank?"),
        ({"jobs": "job,gpu_model\nrank,B200\n"}, "jobs.csv row 1, gpu_model: there is no GPU model 'B200'"),
        ({"jobs": "job,kind\nrank,batch\n"}, "jobs.csv row 1, kind: must be training or analytics, not 'batch'"),
        ({"supply": "region,gpu_model,gpu_hours\neast,A100,1\neast,A100,2\n"}, "there twice; keep one row"),
        (
            {"supply": "region,gpu_model,gpu_hours\neast,A100,1\nwest,A100,many\n"},
            "supply.csv row 2, gpu_hours: must be a number, not 'many'",
        ),
        ({"regions": "region,storage_bytes\n"}, "regions.csv: has 0 regions; there must be 1 to"),
    ],
)
def test_what_is_wrong_names_the_row_and_the_remedy(
    tmp_path: Path, changed: dict[str, str | None], message: str
) -> None:
    with pytest.raises(FormatError) as raised:
        read_warehouse(folder_with(tmp_path, **changed))
    assert message in str(raised.value)


def test_reads_of_jobs_where_there_are_none_are_refused_by_their_rows(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as refused:
        read_warehouse(folder_with(tmp_path, jobs="job\n"))
    assert "reads.csv row 1, job: there is no job 'rank'" in str(refused.value)


def test_a_table_larger_than_can_be_counted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"tables.csv row 1, size_bytes: must be at most \d+, not 1e\+30"):
        read_warehouse(folder_with(tmp_path, tables="table,size_bytes,home\nclicks,1e30,east\nviews,50,west\n"))


def test_rows_of_a_region_that_is_gone_are_not_called_repeated(tmp_path: Path) -> None:
    tables = "table,size_bytes,home,replicas\nclicks,100,east,\nviews,50,east,\n"
    with pytest.raises(FormatError) as refused:
        read_warehouse(folder_with(tmp_path, regions="region,storage_bytes\neast,1000\n", tables=tables))
    said = str(refused.value)
    assert "supply.csv row 2, region: there is no region 'west'" in said
    assert "quotas.csv row 2, region: there is no region 'west'" in said
    assert "twice" not in said


def test_a_pair_that_is_read_twice_counts_once_with_the_larger_part(tmp_path: Path) -> None:
    reads = "job,table,newest_share\nrank,views,1\nrank,clicks,0.25\nreport,views,0.5\nrank,clicks,0.75\n"
    jobs = read_warehouse(folder_with(tmp_path, reads=reads)).jobs
    assert jobs.table_start.tolist() == [0, 2, 3]
    assert jobs.tables.tolist() == [0, 1, 1]
    assert jobs.newest_share is not None
    assert jobs.newest_share.tolist() == [0.75, 1.0, 0.5]


def test_integers_beyond_what_a_float_holds_exactly_are_read(tmp_path: Path) -> None:
    regions = f"region,storage_bytes\neast,{2**62}\nwest,{2**53 + 1}\n"
    read = read_warehouse(folder_with(tmp_path, regions=regions))
    assert read.regions.storage_bytes.tolist() == [float(2**62), float(2**53)]


def test_a_file_in_both_formats_is_refused(tmp_path: Path) -> None:
    write_warehouse(tmp_path, generate_warehouse(20, 2, np.random.default_rng(1)))
    folder_with(tmp_path)
    with pytest.raises(FormatError, match=r"tables.parquet: is there, and tables.csv is, too; remove the one"):
        read_warehouse(tmp_path)


def test_a_folder_with_files_of_another_warehouse_is_not_written_to(tmp_path: Path) -> None:
    made = generate_warehouse(20, 2, np.random.default_rng(1))
    write_warehouse(tmp_path, made)
    before = (tmp_path / "tables.parquet").read_bytes()
    (tmp_path / "failures.csv").write_text("region,other,probability\n")
    with pytest.raises(FormatError) as refused:
        write_warehouse(tmp_path, generate_warehouse(30, 2, np.random.default_rng(2)))
    assert [problem.field for problem in refused.value.problems] == ["failures.csv"]
    assert "name another folder" in str(refused.value)
    assert (tmp_path / "tables.parquet").read_bytes() == before
    (tmp_path / "failures.csv").unlink()
    write_warehouse(tmp_path, made)
