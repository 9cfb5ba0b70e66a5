"""A few lines of every format of jobs, written by hand, and what must come of them."""

from __future__ import annotations

from dataclasses import dataclass, field

PHILLY_LOG = """\
[
  {
    "status": "Pass", "vc": "aa11bb", "jobid": "application_1_0001",
    "attempts": [
      {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
       "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]},
      {"start_time": "2017-10-07 01:20:00", "end_time": "2017-10-07 01:20:26",
       "detail": [{"ip": "m3", "gpus": ["gpu0", "gpu1", "gpu2", "gpu3"]}]}
    ],
    "submitted_time": "2017-10-07 01:11:39", "user": "u1"
  },
  {"status": "Killed", "vc": "aa11bb", "jobid": "application_1_0002", "attempts": [],
   "submitted_time": "2017-10-07 02:00:00", "user": "u1"},
  {"status": "Killed", "vc": "cc22dd", "jobid": "application_1_0003",
   "attempts": [{"start_time": "2017-10-07 02:00:00", "end_time": "None",
                 "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}],
   "submitted_time": "2017-10-07 02:00:00", "user": "u2"},
  {"status": "Failed", "vc": "cc22dd", "jobid": "application_1_0004",
   "attempts": [{"start_time": null, "end_time": null, "detail": []},
                {"start_time": "2017-10-07 03:00:00", "end_time": "2017-10-07 03:00:10",
                 "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}],
   "submitted_time": "2017-10-07 02:30:00", "user": "u2"},
  {"status": "Pass", "vc": "cc22dd", "jobid": "application_1_0005",
   "attempts": [{"start_time": "yesterday", "end_time": "2017-10-07 03:00:10",
                 "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}],
   "submitted_time": "2017-10-07 02:30:00", "user": "u2"}
]
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,uA,vcA,8,32,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-09 19:42:01,3600,60
12,uA,vcA,0,4,1,COMPLETED,2020-06-09 18:41:02,2020-06-09 18:42:01,2020-06-09 19:42:01,3600,60
13,uB,vcB,12,48,5,FAILED,2020-06-09 18:41:03,2020-06-09 18:41:03,2020-06-09 18:41:13,10,0
14,uB,vcB,1,1,1,CANCELLED,2020-06-09 18:41:04,None,2020-06-09 18:41:13,0,9
15,uB,vcB,x,1,1,COMPLETED,2020-06-09 18:41:05,2020-06-09 18:41:13,2020-06-09 18:41:14,1,8
16,uB,vcB,1,1,1,COMPLETED,2020-06-09 18:41:05,2020-06-09 18:41:13,2020-06-09 18:41:12,1,8
"""
SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
501,u1,2,16,256,Pretrain,COMPLETED,2023-03-01 08:00:00+08:00,2023-03-01 08:00:30+08:00,2023-03-01 09:00:30+08:00,3600,30,57600.0
502,u2,1,0,128,Other,FAILED,2023-03-01 08:00:01+08:00,2023-03-01 08:00:30+08:00,2023-03-01 09:00:30+08:00,3600,29,0.0
"""
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlcA,u1,8,64,960,1000,100.0,SFT,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlcB,u1,1,2,,,,Other,FAILED,2023-05-17 11:01:58+00:00,,,,,0,10.0,0
"""
PAI_TASKS = """\
j1,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
j1,ps,2.0,Terminated,1739162.0,1739200.0,600.0,29.296875,,
j2,worker,4.0,Terminated,1739300.0,1739400.0,1200.0,32.0,200.0,V100
j3,worker,1.0,Running,1739300.0,,600.0,29.0,100.0,T4
j4,worker,0.0,Failed,1739300.0,1739400.0,600.0,29.0,100.0,T4
"""
PAI_JOBS = """\
j1,i1,58540f191766,Terminated,1739100.0,1739200.0
j2,i2,0eaa11bb,Terminated,,1739400.0
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-1,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497
pod-2,4000,15258,1,220,,BE,Running,9679175,9973826,9679180
pod-3,16000,32768,1,1000,V100M16|V100M32,LS,Running,9967058,9968575,9967063
pod-4,16000,32768,1,1000,T4,LS,Pending,9967058,9968575,
pod-5,12500,57344,0,0,,LS,Running,9967058,9968058,9967058
pod-6,16000,32768,2,1000,T4,LS,Running,9967058,9967058,9967058
"""
SWF = """\
; Version: 2.2
; UnixStartTime: 786297610
  1   100    10   3600   16   -1   -1   16   7200   -1   1   3   1   1   2   1   -1   -1
  2   160    -1   60     8    -1   -1   -1   100    -1   0   4   1   1   2   1   -1   -1 ; alone
  3   200    -1   -1     -1   -1   -1   8    100    -1   5   4   1   1   2   1   -1   -1
  4   260    5    30     8    -1   -1   8    100    -1   2   4   1   1   2   1   -1   -1
  5   x      5    30     8    -1   -1   8    100    -1   1   4   1   1   2   1   -1   -1
  6   300    5    30     8
"""
SACCT = """\
JobID|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|AllocTRES
100|ann|vision|gpu|COMPLETED|2026-07-13T08:06:54|2026-07-13T08:07:00|2026-07-13T09:07:00|3600|2|billing=64,cpu=64,gres/gpu=8,gres/gpu:a100=8,mem=512G,node=2
100.batch||vision||COMPLETED|2026-07-13T08:06:54|2026-07-13T08:07:00|2026-07-13T09:07:00|3600|1|cpu=32,gres/gpu=4,mem=256G,node=1
101_7|bob||gpu|FAILED|2026-07-13T08:06:54|2026-07-13T08:07:00|2026-07-13T08:07:30|30|1|cpu=4,gres/gpu=1,mem=16000M,node=1
102|bob||gpu|CANCELLED by 19032|2026-07-13T08:06:54|None|2026-07-13T08:07:30|0|1|
103|bob||gpu|RUNNING|2026-07-13T08:06:54|2026-07-13T08:07:00|Unknown|30|1|cpu=4,gres/gpu=1,mem=16G,node=1
104|bob|etl|cpu|COMPLETED|2026-07-13T08:06:54|2026-07-13T08:07:00|2026-07-13T08:07:30|30|1|cpu=4,mem=16G,node=1
105|bob|etl|cpu|COMPLETED|yesterday|2026-07-13T08:07:00|2026-07-13T08:07:30|30|1|cpu=4,gres/gpu=1,mem=16G,node=1
106|bob|etl|cpu|COMPLETED|2026-07-13T08:06:54|2026-07-13T08:07:00
"""
PHILLY_JOBS = "job_id,virtual_cluster,gpus,submit_s,duration_s,source\np0,aa,8,10,20,PG\np1,bb,8,x,20,P\n"
ITP_JOBS = "job_id,cluster,gpus,submit_s,duration_s\nitp08-0,itp08,1,3793,1183\n"
VENUS_JOBS = "job_id,gpus,submit_s,duration_s,clipped_at_48h\nv1,32,5,172800,1\n"
PAI_CONVERTED = "task_id,role,gpus,submit_s,duration_s,clipped_at_48h\na1,worker,8,16670,167731,0\n"
KALOS_JOBS = """\
job_id,job_class,gpus,nodes,cpus,memory_per_pod_gb,submit_s,duration_s
k0,pretrain,64,8,960,1000,0,104
"""
GAVEL = """\
job_id,vc,job_type,gpus,total_steps,submit_s,vc_submit_s,duration_s,philly_duration_s
aa-0,aa,A3C,2,100,84420,0,,3613015
"""
CHRONUS = """\
job_id,num_gpu,submit_time,iterations,model_name,duration,interval,vc
5620,2,60,3488,resnet101,11760,0,vc_6c
"""
SYNERGY = """\
job_id,arrival,gpus,duration_fair_s,total_iter,iter_time_fair,model,task,cpu_demand,mem_demand_gb,sspeed_demand,speedup_ideal
0,1256.5,4,2068.200,3447,0.600000,alexnet,IMAGE,12,125,62.5,2.9400
"""
TIRESIAS = "job_id,gpus,submit_s,duration_s,model,iterations\n0,8,30,147,vgg11,133\n"
TOPMAST = "workload_id,tenant,submit_s,duration_s,gpus,region\nw1,ads,1,2,4,east\n"


@dataclass(frozen=True)
class Sample:
    """`rows`: id, tenant, submission, duration, GPUs, tasks. Bad rows: line and column."""

    format: str
    text: str
    rows: tuple[tuple[str, str, float, float, int, int | None], ...]
    bad: tuple[tuple[int, str], ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)


NOT_ENDED = "had not ended when the log was written"
SAMPLES = (
    Sample(
        "philly",
        PHILLY_LOG,
        (
            ("application_1_0001", "aa11bb", 1507338699.0, 100.0, 4, None),
            ("application_1_0004", "cc22dd", 1507343400.0, 10.0, 1, None),
        ),
        ((23, "attempts[0].start_time"),),
        {"never started": 1, NOT_ENDED: 1},
    ),
    Sample(
        "helios",
        HELIOS,
        (("11", "vcA", 1591728061.0, 3600.0, 8, 1), ("13", "vcB", 1591728063.0, 10.0, 12, None)),
        ((6, "gpu_num"), (7, "end_time")),
        {"use no GPU": 1, "never started": 1},
    ),
    Sample("acme", SEREN, (("501", "Pretrain", 1677628800.0, 3600.0, 16, 2),), (), {"use no GPU": 1}),
    Sample("acme", KALOS, (("dlcA", "SFT", 1684321258.0, 8.0, 64, 8),), (), {"never started": 1}),
    Sample(
        "alibaba-v2020",
        PAI_TASKS,
        (("j1/tensorflow", "pai", 1739162.0, 38.0, 1, 1), ("j2/worker", "pai", 1739300.0, 100.0, 8, 4)),
        ((5, "inst_num"),),
        {"use no GPU": 1, NOT_ENDED: 1},
    ),
    Sample(
        "alibaba-v2023",
        OPENB,
        (
            ("pod-1", "Burstable", 9437497.0, 1332357.0, 8, 1),
            ("pod-2", "BE", 9679175.0, 294646.0, 1, 1),
            ("pod-3", "LS", 9967058.0, 1512.0, 1, 1),
            ("pod-5", "LS", 9967058.0, 1000.0, 0, 1),
        ),
        (),
        {"never started": 1, "ran for no time at all": 1},
    ),
    Sample(
        "swf",
        SWF,
        (("1", "user-3", 100.0, 3600.0, 16, None), ("2", "user-4", 160.0, 60.0, 8, None)),
        ((7, "submit time"), (8, "the row")),
        {"never started": 1, "are pieces of a job that has a line of its own": 1},
    ),
    Sample(
        "sacct",
        SACCT,
        (
            ("100", "vision", 1783930014.0, 3600.0, 8, 2),
            ("101_7", "bob", 1783930014.0, 30.0, 1, 1),
            ("104", "etl", 1783930014.0, 30.0, 0, 1),
        ),
        ((8, "Submit"), (9, "the row")),
        {"are steps of jobs": 1, "never started": 1, NOT_ENDED: 1},
    ),
    Sample("philly-jobs", PHILLY_JOBS, (("p0", "aa", 10.0, 20.0, 8, None),), ((3, "submit_s"),)),
    Sample("itp-jobs", ITP_JOBS, (("itp08-0", "itp08", 3793.0, 1183.0, 1, None),)),
    Sample("venus-jobs", VENUS_JOBS, (("v1", "venus", 5.0, 172800.0, 32, None),)),
    Sample("pai-tasks", PAI_CONVERTED, (("a1", "pai", 16670.0, 167731.0, 8, None),)),
    Sample("kalos-jobs", KALOS_JOBS, (("k0", "pretrain", 0.0, 104.0, 64, 8),)),
    Sample("gavel-philly", GAVEL, (("aa-0", "aa", 84420.0, 3613015.0, 2, None),)),
    Sample("chronus", CHRONUS, (("5620", "vc_6c", 60.0, 11760.0, 2, None),)),
    Sample("synergy", SYNERGY, (("0", "synergy", 1256.5, 2068.2, 4, None),)),
    Sample("tiresias", TIRESIAS, (("0", "tiresias", 30.0, 147.0, 8, None),)),
    Sample("topmast", TOPMAST, (("w1", "ads", 1.0, 2.0, 4, None),)),
)
SAMPLE_IDS = tuple(f"{sample.format}-{number}" for number, sample in enumerate(SAMPLES))
