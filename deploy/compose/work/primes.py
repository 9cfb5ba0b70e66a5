"""Counts primes, for as long as a demonstration lasts."""

import platform

LIMIT = 200_000

sieve = bytearray([1]) * LIMIT
sieve[:2] = b"\0\0"
for number in range(2, int(LIMIT**0.5) + 1):
    if sieve[number]:
        sieve[number * number :: number] = bytes(len(range(number * number, LIMIT, number)))
print(f"{sum(sieve)} primes below {LIMIT}, counted on {platform.node()}")
