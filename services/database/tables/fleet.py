"""Regions, clusters and machines."""

from __future__ import annotations

from typing import Final

from sqlalchemy import CheckConstraint, Float, ForeignKey, Integer, SmallInteger, Table, Text, text

from domain.fleet import MachineState
from services.database.tables.definition import DOCUMENT, METADATA, NAME, key, optional, required

REGIONS: Final = Table(
    "regions",
    METADATA,
    key("region", NAME),
    required("position", Integer),
)

CLUSTERS: Final = Table(
    "clusters",
    METADATA,
    key("cluster", NAME),
    required("region", NAME, ForeignKey("regions.region", ondelete="CASCADE"), index=True),
    required("position", Integer),
    # What places jobs in it.
    required("mechanism", NAME, server_default=text("'packing'")),
    # As in fleet.yaml (`formats.cell_hierarchies`).
    required("cells", DOCUMENT, server_default=text("""'{"hierarchies": []}'""")),
    # As in fleet.yaml (`formats.inference_side`); null: its machines are for training.
    optional("inference", DOCUMENT),
)

MACHINES: Final = Table(
    "machines",
    METADATA,
    key("machine", NAME),
    required("cluster", NAME, ForeignKey("clusters.cluster", ondelete="CASCADE"), index=True),
    required("rack", NAME),
    # Of its rack; empty: not known.
    required("power_domain", NAME, server_default=text("''")),
    # Order within the cluster: racks in order, machines in order within their rack.
    required("position", Integer),
    required("gpu_model", NAME),
    required("gpus", SmallInteger),
    required("cpus", Float),
    required("memory_gib", Float),
    required("state", NAME, server_default=text("'up'")),
    CheckConstraint(f"state IN ({', '.join(repr(state.value) for state in MachineState)})", name="machines_state"),
)

MACHINE_DRAINS: Final = Table(
    # Machines that an operator has drained, and has not undrained since.
    "machine_drains",
    METADATA,
    key("machine", NAME, ForeignKey("machines.machine", ondelete="CASCADE")),
    required("reason", Text),
    required("drained_s", Float),
    # From then on what is still on it has to leave; null: it may end by itself.
    optional("deadline_s", Float),
)

LOST_CLUSTERS: Final = Table(
    # Clusters that were declared lost and are not back yet: nothing runs there, and nothing is sent there.
    "lost_clusters",
    METADATA,
    key("cluster", NAME, ForeignKey("clusters.cluster", ondelete="CASCADE")),
    required("declared_s", Float),
    required("reason", Text),
)
