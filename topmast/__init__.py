"""Topmast for its users: the client, what it takes and what it returns.

>>> from topmast import Client
>>> with Client() as client:
...     submission = client.submit(tenant="vision", command=["python", "train.py"], gpus=8, gpu_model="A100")
...     print(client.wait(submission.workload).state)
"""

from topmast.actions import Change
from topmast.async_client import AsyncClient
from topmast.capacity import FleetCapacity
from topmast.client import Client
from topmast.diagnoses import CapacityHolder, Diagnosis, DiagnosisNumbers, OutOfUse, RegionDiagnosis
from topmast.drains import Drained, MachineScope, Undrained
from topmast.dry_run import CheckedWorkload, DryRunChanges, HostingRegion, KindChanges
from topmast.environment_file import read_environment_file
from topmast.errors import (
    AlreadyExistsError,
    DeadlineError,
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    NotPlacedYetError,
    PartlySubmittedError,
    PreconditionError,
    ResourceExhaustedError,
    TopmastError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
    Violation,
    WorkingDirectoryError,
)
from topmast.events import Event
from topmast.fleet_parts import FleetUploadProgress
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
    TenantLimits,
    VirtualCluster,
)
from topmast.identities import AccessToken, AuditRecord, Identity, NewToken
from topmast.loans import ClusterLoans, ReturningMachine
from topmast.logs import LogChunk
from topmast.losses import DeclaredLost
from topmast.machines import FleetMachine, MachineDrain, MachineHolder, MachinePage
from topmast.notifications import Notification, NotificationStatus
from topmast.runtime_environment import RuntimeEnvironment
from topmast.sessions import Execution
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
from topmast.status import HealthDetail, RegionStatus, StandbyStatus, Status, TierStatus
from topmast.tenant_use import QuotaUse, TenantPage, TenantUse, UsagePage, UsageRow
from topmast.user_requests import WorkloadNow
from topmast.virtual_clusters import CellClusterUsage, CellLevelUsage, TenantCellUsage, VirtualClusters
from topmast.workload_graph import GraphWorkload, WorkloadGraph
from topmast.workloads import (
    ArrayElements,
    Attempt,
    AwaitedWorkload,
    Consolidation,
    JobCells,
    JobTuning,
    Preemptor,
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
    "AccessToken",
    "Affinity",
    "AlreadyExistsError",
    "AppliedFleet",
    "ArrayElements",
    "AsyncClient",
    "Attempt",
    "AuditRecord",
    "AwaitedWorkload",
    "CapacityHolder",
    "CellClusterUsage",
    "CellHierarchy",
    "CellLevel",
    "CellLevelUsage",
    "Change",
    "CheckedWorkload",
    "Client",
    "Cluster",
    "ClusterLoans",
    "Consolidation",
    "DeadlineError",
    "DeclaredLost",
    "Diagnosis",
    "DiagnosisNumbers",
    "Drained",
    "DryRunChanges",
    "Emulated",
    "Event",
    "Execution",
    "Fleet",
    "FleetCapacity",
    "FleetMachine",
    "FleetUploadProgress",
    "GraphWorkload",
    "HealthDetail",
    "HostingRegion",
    "Identity",
    "InferenceSide",
    "InvalidArgumentError",
    "JobCells",
    "JobSpecification",
    "JobTuning",
    "KindChanges",
    "LogChunk",
    "Machine",
    "MachineDrain",
    "MachineHolder",
    "MachinePage",
    "MachineScope",
    "ModelProfile",
    "NewToken",
    "NotAllowedError",
    "NotFoundError",
    "NotPlacedYetError",
    "Notification",
    "NotificationStatus",
    "OutOfUse",
    "OwnedCells",
    "PartlySubmittedError",
    "PinnedCell",
    "PreconditionError",
    "Preemptor",
    "PriorityQuota",
    "Queue",
    "QueueEntry",
    "QueuePosition",
    "QuotaUse",
    "Rack",
    "Region",
    "RegionDiagnosis",
    "RegionStatus",
    "Reservation",
    "ResourceExhaustedError",
    "RetryPolicy",
    "ReturningMachine",
    "RuntimeEnvironment",
    "StandbyStatus",
    "Status",
    "Submission",
    "Table",
    "TableInput",
    "TaskGroup",
    "TaskPlacement",
    "Tenant",
    "TenantCellUsage",
    "TenantLimits",
    "TenantPage",
    "TenantUse",
    "TierStatus",
    "TopmastError",
    "UnauthenticatedError",
    "UnavailableError",
    "Undrained",
    "UnreachableError",
    "UsagePage",
    "UsageRow",
    "Violation",
    "VirtualCluster",
    "VirtualClusters",
    "WorkingDirectoryError",
    "Workload",
    "WorkloadGraph",
    "WorkloadNow",
    "WorkloadPage",
    "WorkloadSpecification",
    "WorkloadState",
    "read_environment_file",
    "single_job",
]
