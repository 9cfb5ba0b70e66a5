"""Submits a short Python program to every region, on both of its clusters, and prints what it printed there."""

from __future__ import annotations

import sys
from pathlib import Path

from topmast import Client, WorkloadState, single_job

REGIONS = ("east", "west", "north")
WORK = Path(__file__).parent / "work"


def main() -> int:
    """0 when the work of all regions has completed."""
    with Client(timeout_s=60.0, attempts=5) as client:
        package = client.upload_working_directory(str(WORK))
        # Four of a machine's four GPUs for each task: so the two are on two machines, and that is on two clusters.
        submissions = client.submit_many(
            [
                single_job(
                    tenant="demo",
                    name=f"primes-{region}",
                    command=["python", "primes.py"],
                    package=package,
                    gpus=4,
                    tasks=2,
                    regions=[region],
                )
                for region in REGIONS
            ]
        )
        completed = 0
        for region, submission in zip(REGIONS, submissions, strict=True):
            ended = client.wait(submission.workload)
            print(f"{region}: {submission.workload} {ended.state} {ended.reason}")
            printed: dict[int, bytes] = {}
            for chunk in client.logs(submission.workload):
                printed[chunk.task] = printed.get(chunk.task, b"") + chunk.chunk
            for task, output in sorted(printed.items()):
                print(f"  task {task}: {output.decode().strip()}")
            completed += ended.state is WorkloadState.COMPLETED and len(printed) == 2
    return 0 if completed == len(REGIONS) else 1


if __name__ == "__main__":
    sys.exit(main())
