"""Topmast for its users: the client, what it takes and what it returns.

>>> from topmast import Client
>>> with Client() as client:
...     submission = client.submit(tenant="vision", command=["python", "train.py"], gpus=8, gpu_model="A100")
...     print(client.wait(submission.workload).state)
"""

from topmast.actions import Change
from topmast.async_client import AsyncClient
from topmast.client import Client
from topmast.diagnoses import Diagnosis, DiagnosisNumbers
from topmast.errors import (
    AlreadyExistsError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PartlySubmittedError,
    PreconditionError,
    ResourceExhaustedError,
    TopmastError,
    UnavailableError,
    UnreachableError,
    Violation,
)
from topmast.events import Event
from topmast.fleets import (
    AppliedFleet,
    CellHierarchy,
    CellLevel,
    Cluster,
    Fleet,
    InferenceSide,
    Machine,
    OwnedCells,
    PinnedCell,
    PriorityQuota,
    Rack,
    Region,
    Table,
    Tenant,
    VirtualCluster,
)
from topmast.loans import ClusterLoans, ReturningMachine
from topmast.logs import LogChunk
from topmast.losses import DeclaredLost
from topmast.specifications import (
    Affinity,
    Emulated,
    JobSpecification,
    ModelProfile,
    RetryPolicy,
    TableInput,
    TaskGroup,
    WorkloadSpecification,
    single_job,
)
from topmast.status import RegionStatus, Status, TierStatus
from topmast.virtual_clusters import CellClusterUsage, CellLevelUsage, TenantCellUsage, VirtualClusters
from topmast.workloads import (
    Attempt,
    Consolidation,
    JobCells,
    JobTuning,
    Queue,
    QueueEntry,
    QueuePosition,
    Reservation,
    Submission,
    TaskPlacement,
    Workload,
    WorkloadPage,
    WorkloadState,
)

__all__ = [
    "Affinity",
    "AlreadyExistsError",
    "AppliedFleet",
    "AsyncClient",
    "Attempt",
    "CellClusterUsage",
    "CellHierarchy",
    "CellLevel",
    "CellLevelUsage",
    "Change",
    "Client",
    "Cluster",
    "ClusterLoans",
    "Consolidation",
    "DeadlineError",
    "DeclaredLost",
    "Diagnosis",
    "DiagnosisNumbers",
    "Emulated",
    "Event",
    "Fleet",
    "InferenceSide",
    "InvalidArgumentError",
    "JobCells",
    "JobSpecification",
    "JobTuning",
    "LogChunk",
    "Machine",
    "ModelProfile",
    "NotFoundError",
    "OwnedCells",
    "PartlySubmittedError",
    "PinnedCell",
    "PreconditionError",
    "PriorityQuota",
    "Queue",
    "QueueEntry",
    "QueuePosition",
    "Rack",
    "Region",
    "RegionStatus",
    "Reservation",
    "ResourceExhaustedError",
    "RetryPolicy",
    "ReturningMachine",
    "Status",
    "Submission",
    "Table",
    "TableInput",
    "TaskGroup",
    "TaskPlacement",
    "Tenant",
    "TenantCellUsage",
    "TierStatus",
    "TopmastError",
    "UnavailableError",
    "UnreachableError",
    "Violation",
    "VirtualCluster",
    "VirtualClusters",
    "Workload",
    "WorkloadPage",
    "WorkloadSpecification",
    "WorkloadState",
    "single_job",
]
