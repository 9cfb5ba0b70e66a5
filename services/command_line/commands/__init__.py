"""One file per command.

What is heavy to import (Ray, Numba, SQLAlchemy, the client itself) is imported inside the functions: the command must
be there at once, also when it only completes a word or says its version.
"""
