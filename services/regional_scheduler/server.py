"""The gRPC face of a regional scheduler: what it has, what it would do, and maintenance of its machines.

Calls are answered from the memory of the present session; while there is none they are UNAVAILABLE. Whatever changes
something goes through the session's own loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc

from domain.events import EvictionCause
from domain.fleet import MachineState
from domain.identifiers import MachineId, TenantId, WorkloadId
from domain.placement import AttemptKey, Plan
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.workload import Workload
from formats.workload_checks import KnownNames, check_workload
from regional_scheduler.eligibility import abandonment
from regional_scheduler.planner import plan_workload
from services.grpc_errors import abort_invalid, abort_not_found, abort_precondition, abort_unavailable
from services.regional_scheduler.session import MachineRequest, RegionMemory, RegionSession
from services.wire.plans import attempt_to_text, plan_to_proto
from services.wire.workloads import specification_from_proto
from topmast.v1 import regional_scheduler_pb2 as messages
from topmast.v1 import regional_scheduler_pb2_grpc
