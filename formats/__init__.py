"""The files that people and programs hand to each other: fleet, tenants, workloads, traces, the event log.

Every reader returns domain types, or says in one line per problem what to change (docs/formats.md).
Nothing here decides anything; the only input and output are the given paths and streams.
"""
