"""Identifiers: one type per thing, so that look-alike strings cannot be swapped."""

from __future__ import annotations

from typing import NewType

WorkloadId = NewType("WorkloadId", str)
TenantId = NewType("TenantId", str)
RegionId = NewType("RegionId", str)
ClusterId = NewType("ClusterId", str)
RackId = NewType("RackId", str)
MachineId = NewType("MachineId", str)
TableId = NewType("TableId", str)
JobName = NewType("JobName", str)
GpuModel = NewType("GpuModel", str)

VirtualClusterId = NewType("VirtualClusterId", str)
"""What a tenant may count on in a cluster divided into cells (HiveD §3)."""

AttemptNumber = NewType("AttemptNumber", int)
"""Attempts of a workload are numbered from 1; the number is the fencing token."""

ANY_GPU_MODEL = GpuModel("any")
"""In a request: every GPU model will do. In a quota: the bucket of all models that have none of their own."""

IDENTIFIER_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"
"""What a name in a file or message may look like (whole string): tenants, regions, machines, tables, ..."""
