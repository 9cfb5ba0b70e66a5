"""How fast a tenant submits: a bucket of tokens, one for each workload, that fills at the rate of its limit."""

from __future__ import annotations

from dataclasses import dataclass

from domain.tenant_limits import TenantLimits


@dataclass(frozen=True, slots=True)
class SubmissionBucket:
    """What was left of it at a moment, in real seconds. Below zero after a call with more workloads than fit in."""

    left: float
    at_s: float


@dataclass(frozen=True, slots=True)
class TooFast:
    """The submission is refused; the same one is accepted after so many seconds if nothing else is submitted meanwhile."""

    wait_s: float


def full_bucket(limits: TenantLimits, now: float) -> SubmissionBucket:
    """Of a tenant that has not submitted anything for long."""
    return SubmissionBucket(limits.burst, now)


def take(bucket: SubmissionBucket, limits: TenantLimits, workloads: int, now: float) -> SubmissionBucket | TooFast:
    """The bucket without a token for each of the workloads of a call, which are accepted together or not at all.

    A call with more workloads than ever fit in is accepted when it is full, and made up for after that.
    """
    rate = limits.submissions_per_s
    if rate is None:
        return bucket
    left = min(limits.burst, bucket.left + rate * max(0.0, now - bucket.at_s))
    needed = min(float(workloads), limits.burst)
    if left < needed:
        return TooFast((needed - left) / rate)
    return SubmissionBucket(left - workloads, now)
