"""The messages and services of protos/topmast/v1; generated, never edited."""
