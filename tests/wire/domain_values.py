"""Values of the domain as they may travel, for properties of the conversion."""

from __future__ import annotations

from hypothesis import strategies as st

from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity, TaskGroup
from domain.events import Event, EventKind, JsonValue
from domain.identifiers import (
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.model_profile import ModelProfile
from domain.placement import AttemptKey, Score, TaskPlacement
from domain.resources import TaskResources
from domain.runtime_environment import RuntimeEnvironment
from domain.scaling import ScalingPoint
from domain.workload import (
    Command,
    Emulated,
    EntryPoint,
    JobSpecification,
    PythonCallable,
    RetryPolicy,
    TableInput,
    WorkloadSpecification,
)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
pairs = st.dictionaries(texts, texts, max_size=3).map(lambda entries: tuple(sorted(entries.items())))

entry_points: st.SearchStrategy[EntryPoint] = st.one_of(
    st.builds(Command, st.lists(texts, max_size=3).map(tuple)),
    st.builds(PythonCallable, texts),
    st.builds(Emulated, numbers, numbers),
)

withins = st.builds(CellAffinity, names, st.booleans())
counts = st.integers(1, 2**31 - 1)
groups: st.SearchStrategy[TaskGroup] = st.recursive(
    st.builds(TaskGroup, counts, st.none() | withins, count=counts),
    lambda inner: st.builds(
        TaskGroup, counts, st.none() | withins, st.lists(inner, min_size=1, max_size=2).map(tuple), counts
    ),
    max_leaves=4,
)
affinities = st.builds(JobAffinity, st.none() | withins, st.lists(groups, max_size=2).map(tuple), texts, st.booleans())

jobs = st.builds(
    JobSpecification,
    name=texts.map(JobName),
    tasks=int32s,
    resources=st.builds(
        TaskResources,
        gpus=int32s,
        gpu_model=names.map(GpuModel),
        cpus=st.none() | numbers,
        memory_gib=st.none() | numbers,
    ),
    entry_point=entry_points,
    max_tasks=int32s,
    environment=pairs,
    consolidate=st.booleans(),
    profile=st.none() | st.builds(ModelProfile, st.none() | numbers, st.none() | numbers, st.none() | numbers),
    affinity=st.just(NO_JOB_AFFINITY) | affinities,
    scaling=st.lists(st.builds(ScalingPoint, int32s, numbers), max_size=3).map(tuple),
    across_clusters=st.booleans(),
    runtime=st.none() | st.builds(RuntimeEnvironment, texts, texts, texts, texts, texts),
)

specifications = st.builds(
    WorkloadSpecification,
    name=texts,
    tenant=texts.map(TenantId),
    jobs=st.lists(jobs, max_size=3).map(tuple),
    tables=st.lists(
        st.builds(TableInput, texts.map(TableId), st.booleans(), newest_partitions=st.none() | st.integers(1, 9)),
        max_size=2,
    ).map(tuple),
    regions=st.lists(texts.map(RegionId), max_size=2).map(tuple),
    labels=pairs,
    # 0 is how a message leaves these out: the domain never has it.
    retry=st.builds(RetryPolicy, int32s, numbers.filter(bool), numbers.filter(bool)),
    stop_grace_s=numbers,
)

placements = st.builds(
    TaskPlacement,
    job=texts.map(JobName),
    task=int32s,
    cluster=texts.map(ClusterId),
    machine=texts.map(MachineId),
    gpu_indices=st.lists(st.integers(0, 61), max_size=8).map(tuple),
    millicpus=st.integers(0, 10**9),
    mebibytes=st.integers(0, 10**12),
)

scores = st.builds(
    Score,
    reclaim_class=int32s,
    work_destroyed_by_priority=st.lists(numbers, min_size=7, max_size=7).map(tuple),
    preempted_by_priority=st.lists(int32s, min_size=7, max_size=7).map(tuple),
    preempted_running_s=numbers,
    spread=int32s,
    fragmentation=numbers,
    hint=int32s,
    load=numbers,
)

attempt_keys = st.builds(AttemptKey, names.map(WorkloadId), st.integers(0, 2**31 - 1).map(AttemptNumber))

# Whole floats are equal to the ints that they come back as.
json_values: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)

events = st.builds(
    Event,
    t=numbers,
    event=st.sampled_from(EventKind),
    workload=st.none() | names.map(WorkloadId),
    attempt=st.none() | int32s,
    tenant=st.none() | names.map(TenantId),
    priority=st.none() | int32s,
    level=st.none() | int32s,
    region=st.none() | names.map(RegionId),
    cluster=st.none() | names.map(ClusterId),
    details=st.dictionaries(texts, json_values, max_size=4),
)
