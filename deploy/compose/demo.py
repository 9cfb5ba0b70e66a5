"""Has a short Python program run on both clusters of every region, and prints what it printed there."""

from __future__ import annotations

import sys
from pathlib import Path

from topmast import Client, JobSpecification, WorkloadSpecification, WorkloadState

REGIONS = ("east", "west", "north")
WORK = Path(__file__).parent / "work"


def main() -> int:
    """0 when the work of all regions has completed."""
    with Client(timeout_s=60.0, attempts=5) as client:
        package = client.upload_working_directory(str(WORK))
        submissions = client.submit_many([_primes(region, package) for region in REGIONS])
        completed = 0
        for region, submission in zip(REGIONS, submissions, strict=True):
            ended = client.wait(submission.workload)
            print(f"{region}: {submission.workload} {ended.state} {ended.reason}")
            printed: dict[str, bytes] = {}
            for chunk in client.logs(submission.workload):
                printed[chunk.job] = printed.get(chunk.job, b"") + chunk.chunk
            for job, output in sorted(printed.items()):
                print(f"  {job}: {output.decode().strip()}")
            completed += ended.state is WorkloadState.COMPLETED and len(printed) == 2
    return 0 if completed == len(REGIONS) else 1


def _primes(region: str, package: str) -> WorkloadSpecification:
    """Two jobs, each of which takes all GPUs of a machine: so they are on two machines, and that is on two clusters."""
    jobs = [
        JobSpecification(name=name, tasks=1, gpus=4, command=["python", "primes.py"]) for name in ("first", "second")
    ]
    return WorkloadSpecification(tenant="demo", name=f"primes-{region}", jobs=jobs, package=package, regions=[region])


if __name__ == "__main__":
    sys.exit(main())
