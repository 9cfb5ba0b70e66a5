"""Rounds of tuning: ``python -m benchmarks.tuning_round [--profiles FILE] [--rounds N] [--servers N]``.

64 servers, or so many, of 8 GPUs, 24 CPUs and 500 GB, all GPUs asked for, in the splits of Synergy §5.1 and §5.4: a round of
Synergy-TUNE from nothing, and one for jobs that stay where they are; and what it reaches of the bound of Synergy-OPT.
Without a file of profiles made ones are used, which have the shapes of those that the authors published.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measurement import report, summary_of
from cluster_manager.tuning.demand import DemandBook, GpuAmounts, most_per_gpu
from cluster_manager.tuning.mechanism import MachineRoom, Part, PlacedJob, RunnableJob, TuningMechanism, total_speed
from cluster_manager.tuning.opt import Opt
from cluster_manager.tuning.proportional import Proportional
from cluster_manager.tuning.tune import Tune
from domain.sensitivity import SensitivityProfile
from formats.profiles_file import read_profiles

SERVER = MachineRoom(8, 24_000, 500 * 1024)
SHARE = GpuAmounts(3_000, 64_000)
SEED = 1
SPLITS = ((20, 70, 10), (30, 60, 10), (60, 30, 10), (50, 0, 50))
"""Image, language and speech models, in percent."""
TASKS: tuple[tuple[str, ...], ...] = (
    ("alexnet", "shufflenet", "res18", "mobilenet", "res50"),
    ("gnmt", "lstm", "transformer"),
    ("m5", "deepspeech"),
)
MADE = {
    "alexnet": (12.0, 125.0, 3.0),
    "shufflenet": (12.0, 125.0, 2.9),
    "res18": (9.0, 62.5, 2.4),
    "mobilenet": (6.0, 62.5, 1.5),
    "res50": (4.0, 62.5, 1.2),
    "gnmt": (1.0, 20.0, 1.0),
    "lstm": (1.0, 20.0, 1.0),
    "transformer": (1.0, 20.0, 1.0),
    "m5": (6.0, 187.5, 2.5),
    "deepspeech": (3.0, 62.5, 1.0),
}
"""CPUs and memory that saturate, and how much faster that is than the share."""


def made_profile(cpus: float, memory_gib: float, speedup: float) -> SensitivityProfile:
    """Linear in CPUs up to the saturation; the last half of what is gained takes all of the memory."""
    if speedup == 1.0:
        return SensitivityProfile((cpus,), (memory_gib,), ((1.0,),))
    axis = (1.0, 3.0, *np.arange(4.0, cpus + 1.0).tolist())
    memory = (20.0, 62.5, memory_gib) if memory_gib > 62.5 else (20.0, 62.5)
    rows = []
    for amount in axis:
        full = amount / 3.0 if amount <= 3.0 else 1.0 + (speedup - 1.0) * (amount - 3.0) / max(1.0, cpus - 3.0)
        little = min(full, 1.0 + (speedup - 1.0) / 2.0)
        rows.append((0.1, little, full) if len(memory) == 3 else (0.1, full))
    return SensitivityProfile(axis, memory, tuple(rows))


def made_jobs(
    profiles: Mapping[str, SensitivityProfile],
    book: DemandBook,
    split: Sequence[int],
    several: bool,
    seed: int,
    servers: int,
) -> list[RunnableJob]:
    """Jobs that ask for all GPUs: of one each, or of up to 16 as in Philly."""
    generator = np.random.default_rng(seed)
    left = servers * SERVER.gpus
    jobs: list[RunnableJob] = []
    while left:
        gpus = int(generator.choice([1, 2, 4, 8, 16], p=[0.7, 0.1, 0.1, 0.07, 0.03])) if several else 1
        gpus = min(gpus, left)
        task = TASKS[int(generator.choice(3, p=np.array(split) / 100))]
        profile = profiles[str(generator.choice(task))]
        jobs.append(RunnableJob(gpus, book.of(profile, SHARE, most_per_gpu(gpus, *SERVER))))
        left -= gpus
    return jobs


def bound_of_whole_servers(jobs: Sequence[RunnableJob], servers: int) -> float:
    """The bound of Synergy-OPT if jobs that fill servers are not split over more of them: what these do not use of their
    servers' CPUs and memory helps nobody then."""
    filling = [job for job in jobs if job.gpus % SERVER.gpus == 0]
    others = [job for job in jobs if job.gpus % SERVER.gpus]
    left = servers - sum(job.gpus for job in filling) // SERVER.gpus
    own = sum(float(job.demand.speeds[-1]) for job in filling)
    return own + Opt().ideal(others, [SERVER] * left).bound


def measure(
    profiles: Mapping[str, SensitivityProfile], split: Sequence[int], several: bool, rounds: int, count: int
) -> None:
    """One kind of work, with other jobs in every round."""
    book, servers = DemandBook(), [SERVER] * count
    durations_s, processor_s, kept_s, solve_s = [], [], [], []
    shares: dict[str, list[float]] = {"tune": [], "tune_of_the_paper": [], "proportional": []}
    whole: list[float] = []
    others: tuple[TuningMechanism, ...] = (Tune(exact_paper=True), Proportional())
    for number in range(rounds + 2):
        jobs = made_jobs(profiles, book, split, several, SEED + number, count)
        began_s, started_s = time.thread_time(), time.perf_counter()
        tuned = Tune().allocate(jobs, servers)
        taken_s, ended_s = time.thread_time(), time.perf_counter()
        held = [
            PlacedJob(each.parts, job.demand, each.amounts)
            for each, job in zip(tuned, jobs, strict=True)
            if each is not None
        ]
        kept_started_s = time.thread_time()
        Tune().retuned(held, servers)
        kept_ended_s = time.thread_time()
        if number < 2:
            continue  # The kernels are compiled in the first rounds.
        durations_s.append(ended_s - started_s)
        processor_s.append(taken_s - began_s)
        kept_s.append(kept_ended_s - kept_started_s)
        solve_started_s = time.thread_time()
        bound = Opt().ideal(jobs, servers).bound
        solve_s.append(time.thread_time() - solve_started_s)
        whole.append(total_speed(tuned) / bound_of_whole_servers(jobs, count))
        shares["tune"].append(total_speed(tuned) / bound)
        for mechanism, name in zip(others, ("tune_of_the_paper", "proportional"), strict=True):
            shares[name].append(total_speed(mechanism.allocate(jobs, servers)) / bound)
    kind = "several_gpus" if several else "one_gpu"
    name = f"tuning_round_{kind}_{'_'.join(map(str, split))}"
    work = {"servers": count, "gpus": count * SERVER.gpus, "split": list(split), "seed": SEED}
    extra: dict[str, object] = {
        "processor_p50_s": summary_of(processor_s)["p50_s"],
        "processor_p99_s": summary_of(processor_s)["p99_s"],
        "kept_places_processor_p50_s": summary_of(kept_s)["p50_s"],
        "bound_processor_p50_s": summary_of(solve_s)["p50_s"],
    }
    if several:
        extra["tune_of_bound_of_whole_servers_mean"] = round(float(np.mean(whole)), 4)
        extra["tune_of_bound_of_whole_servers_least"] = round(min(whole), 4)
    for who, values in shares.items():
        extra[f"{who}_of_bound_mean"] = round(float(np.mean(values)), 4)
        extra[f"{who}_of_bound_least"] = round(min(values), 4)
    report(name, work, durations_s, "<= 10 ms a round; throughput >= 0.97 of OPT", extra)


def measure_many(count: int, rounds: int) -> None:
    """Jobs of one GPU that stay where they are, each with a profile of its own: what a region tunes in a round."""
    book, servers = DemandBook(), [SERVER] * -(-count // SERVER.gpus)
    generator, shapes = np.random.default_rng(SEED), list(MADE.values())
    began_s = time.thread_time()
    held = []
    for number in range(count):
        made = made_profile(*shapes[int(generator.integers(len(shapes)))])
        throughput = tuple(tuple(speed * (1.0 + number * 1e-6) for speed in row) for row in made.throughput)
        profile = SensitivityProfile(made.cpus_per_gpu, made.memory_gib_per_gpu, throughput)
        demand = book.of(profile, SHARE, most_per_gpu(1, *SERVER))
        held.append(PlacedJob((Part(number // SERVER.gpus, 1),), demand, demand.base))
    demands_s = time.thread_time() - began_s
    durations_s = []
    for number in range(rounds + 1):
        started_s = time.thread_time()
        Tune().retuned(held, servers)
        if number:
            durations_s.append(time.thread_time() - started_s)
    work = {"jobs": count, "profiles": count, "servers": len(servers), "seed": SEED}
    report(
        "tuning_round_many_profiles", work, durations_s, "none of its own", {"demands_processor_s": round(demands_s, 3)}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=Path, help="CSV of sensitivity profiles (docs/formats.md)")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--servers", type=int, default=64)
    parser.add_argument("--many", type=int, help="only a round of so many jobs, each with a profile of its own")
    given = parser.parse_args()
    if given.many:
        measure_many(given.many, given.rounds)
        return
    made = {model: made_profile(*shape) for model, shape in MADE.items()}
    profiles = read_profiles(given.profiles) if given.profiles else made
    for several in (False, True):
        for split in SPLITS:
            measure(profiles, split, several, given.rounds, given.servers)


if __name__ == "__main__":
    main()
