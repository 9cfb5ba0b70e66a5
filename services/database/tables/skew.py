"""What is known of models, and how long their iterations took where: what placement by skew goes by (Tiresias §3.3)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Float, ForeignKey, Index, Integer, SmallInteger, Table, Text, text

from services.database.tables.definition import METADATA, NAME, REWRITTEN, key, required

REPORTED_PROFILES: Final = Table(
    # What attempts of a workload reported of the models of its jobs.
    "reported_profiles",
    METADATA,
    key("workload", NAME, ForeignKey("workloads.workload", ondelete="CASCADE")),
    key("job", NAME),
    required("largest_tensor_mib", Float),
    required("model_mib", Float),
    required("reported_s", Float),
)

PROFILES_OF_NAMES: Final = Table(
    # The same by tenant and name of the workload, as reported last: for later workloads of that name.
    "profiles_of_names",
    METADATA,
    key("tenant", NAME),
    key("name", Text),
    key("job", NAME),
    required("largest_tensor_mib", Float),
    required("model_mib", Float),
    required("reported_s", Float),
    postgresql_with=REWRITTEN,
)

ITERATION_TIMES: Final = Table(
    # What an iteration took in attempts that have ended, by what ran and by whether it was on more machines than it needs.
    "iteration_times",
    METADATA,
    key("tenant", NAME),
    key("name", Text),
    key("job", NAME),
    key("tasks", Integer),
    # Of each task.
    key("gpus", SmallInteger),
    key("gpu_model", NAME),
    key("spread", Boolean),
    # Of the model, as known last.
    required("skew", Float),
    required("attempts", BigInteger),
    # The sum over the attempts of their mean.
    required("total_s", Float),
    # The transaction that changed the row last.
    required("changed_by", BigInteger, server_default=text("0")),
    Index("iteration_times_changed", "changed_by"),
    postgresql_with=REWRITTEN,
)

PACKLIMITS: Final = Table(
    # The limit that was learnt last; one row.
    "packlimits",
    METADATA,
    key("subject", NAME),
    required("packlimit", Float),
    # Jobs that have run both consolidated and spread.
    required("learnt_from", Integer),
    # Of these and the models of the paper, how many are on the wrong side.
    required("misplaced", Integer),
    required("fitted_s", Float),
    postgresql_with=REWRITTEN,
)
