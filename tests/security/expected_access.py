"""What every role may call, written out by hand: what the rules of the service are tested against.

`+`: yes. `o`: only for its own tenants; what is another's is answered as what there is not. `-`: PERMISSION_DENIED. `*`: asked by nobody who
calls, so a call without a token is answered, too.
"""

from __future__ import annotations

ROLES = ("admin", "operator", "tenant", "read-only", "tier")

_EXPECTED = """
                                        admin operator tenant read-only tier
    GlobalScheduler.SubmitWorkload        +      -       o       -       -
    GlobalScheduler.SubmitWorkloads       +      -       o       -       -
    GlobalScheduler.GetWorkload           +      +       o       o       -
    GlobalScheduler.ListWorkloads         +      +       o       o       -
    GlobalScheduler.WatchWorkload         +      +       o       o       -
    GlobalScheduler.WatchEvents           +      +       o       o       -
    GlobalScheduler.CancelWorkload        +      +       o       -       -
    GlobalScheduler.CancelWorkloads       +      +       o       -       -
    GlobalScheduler.HoldWorkloads         +      +       o       -       -
    GlobalScheduler.ReleaseWorkloads      +      +       o       -       -
    GlobalScheduler.RequeueWorkloads      +      +       o       -       -
    GlobalScheduler.ChangeWorkloads       +      +       o       -       -
    GlobalScheduler.GetWorkloadGraph      +      +       o       o       -
    GlobalScheduler.ResizeWorkload        +      +       o       -       -
    GlobalScheduler.RetuneWorkload        +      +       o       -       -
    GlobalScheduler.MigrateWorkload       +      +       o       -       -
    GlobalScheduler.GetQueue              +      +       o       o       -
    GlobalScheduler.ApplyFleet            +      -       -       -       -
    GlobalScheduler.BeginFleetUpload      +      -       -       -       -
    GlobalScheduler.UploadFleet           +      -       -       -       -
    GlobalScheduler.ApplyUploadedFleet    +      -       -       -       -
    GlobalScheduler.ApplyTenants          +      -       -       -       -
    GlobalScheduler.GetStatus             +      +       o       o       -
    GlobalScheduler.GetVirtualClusters    +      +       o       o       -
    GlobalScheduler.GetLoans              +      +       +       +       -
    GlobalScheduler.PlanMachines          +      +       -       -       -
    GlobalScheduler.ApplyMachineRequests  +      -       -       -       -
    GlobalScheduler.DeclareLost           +      +       -       -       -
    GlobalScheduler.ExplainMachine        +      +       o       o       -
    GlobalScheduler.GetFleet              +      +       +       +       -
    GlobalScheduler.ListMachines          +      +       o       o       -
    GlobalScheduler.Drain                 +      +       -       -       -
    GlobalScheduler.Undrain               +      +       -       -       -
    GlobalScheduler.ListTenants           +      +       o       o       -
    GlobalScheduler.GetUsage              +      +       o       o       -
    GlobalScheduler.SaveSnapshot          +      +       -       -       -
    DataPlacement.ImportWarehouse         +      -       -       -       -
    DataPlacement.ExportWarehouse         +      +       -       -       -
    DataPlacement.ListTables              +      +       o       o       -
    DataPlacement.ExplainTable            +      +       o       o       -
    DataPlacement.PlanPlacement           +      +       -       -       -
    DataPlacement.GetPlacementPlan        +      +       -       -       -
    DataPlacement.ApplyPlacementPlan      +      -       -       -       -
    DataPlacement.ListTableMoves          +      +       -       -       -
    DataPlacement.DeclareDataCapacity     +      -       -       -       -
    Packages.GetPackageLimits             +      -       o       -       -
    Packages.FindPackage                  +      -       o       -       -
    Packages.UploadPackage                +      -       o       -       -
    Access.WhoAmI                         +      +       +       +       +
    Access.CreateToken                    +      -       -       -       -
    Access.ListTokens                     +      -       -       -       -
    Access.RevokeToken                    +      -       -       -       -
    Access.ListAuditRecords               +      -       -       -       -
    RegionalScheduler.GetInventory        -      -       -       -       +
    RegionalScheduler.PlanWorkload        -      -       -       -       +
    RegionalScheduler.DrainMachine        -      -       -       -       +
    RegionalScheduler.UndrainMachine      -      -       -       -       +
    RegionalScheduler.DrainMachines       -      -       -       -       +
    RegionalScheduler.UndrainMachines     -      -       -       -       +
    RegionalScheduler.ResizeWorkload      -      -       -       -       +
    RegionalScheduler.RetuneWorkload      -      -       -       -       +
    RegionalScheduler.MigrateWorkload     -      -       -       -       +
    RegionalScheduler.ReclaimMachines     -      -       -       -       +
    RegionalScheduler.AnswerFurther       -      -       -       -       +
    ClusterManager.ExecutePlan            -      -       -       -       +
    ClusterManager.StopAttempt            -      -       -       -       +
    ClusterManager.ResizeAttempt          -      -       -       -       +
    ClusterManager.GetStatus              -      -       -       -       +
    ClusterManager.WatchStatus            -      -       -       -       +
    ClusterManager.ForgetAttempts         -      -       -       -       +
    ClusterManager.ReadLogs               +      +       o       o       -
    ClusterManager.OpenSession            +      +       o       -       -
    TrainingSession.Heartbeat             *      *       *       *       *
    TrainingSession.CheckpointSaved       *      *       *       *       *
    InferenceScheduler.GetDemand          -      -       -       -       +
    Health.Check                          *      *       *       *       *
    Health.List                           *      *       *       *       *
    Health.Watch                          *      *       *       *       *
    ServerReflection.ServerReflectionInfo +      +       +       +       +
"""

EXPECTED = {
    words[0]: dict(zip(ROLES, words[1:], strict=True))
    for words in (line.split() for line in _EXPECTED.splitlines() if "." in line)
}
"""By service and method, without the package, then by role."""
