"""Compiles a function to machine code and keeps the result on disk, so that a second start is quick.

Numba's own cache only notices edits to the file of the outermost function. Here the name under which a function is
cached contains a fingerprint of its code, of the constants it reads and of every compiled function it calls, so that
an edit anywhere below makes a new cache entry instead of running old code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np

_HOW = b"1"
"""To be changed with the options below: they are part of what the machine code is made from."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def compiled(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, compiled at its first call (or loaded from the cache of an earlier process).

    It must be written in the part of Python that Numba compiles. Integer division by zero is not checked.
    """
    function.__qualname__ = f"{function.__qualname__}_{_fingerprint(function)}"
    return cast(Callable[Parameters, Result], numba.njit(cache=True, error_model="numpy")(function))


def compiled_beside_others(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same for what may take more than milliseconds: meanwhile other threads of Python go on.

    Nothing else may change its arrays until it returns.
    """
    function.__qualname__ = f"{function.__qualname__}_{_fingerprint(function)}"
    make = numba.njit(cache=True, error_model="numpy", nogil=True)
    return cast(Callable[Parameters, Result], make(function))


def compiled_part(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same for a function that only compiled functions call, and that neither makes nor returns an array.

    Numba counts references to arrays atomically whenever one is named; that took more than half of the time. Here it
    does not, and makes no entry from Python, which halves the time to compile.
    """
    function.__qualname__ = f"{function.__qualname__}_{_fingerprint(function)}"
    # Numba's own types do not know all of Numba's options.
    njit = cast(Callable[..., Callable[[object], object]], numba.njit)
    make = njit(cache=True, error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return cast(Callable[Parameters, Result], make(function))


def compiled_copy(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`compiled_part` of a function that Python goes on calling as it is, such as a rule of the domain."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__annotations__ = function.__annotations__
    copy.__module__ = function.__module__
    return compiled_part(cast(Callable[Parameters, Result], copy))


def constant(number: int) -> int:
    """A number to hand from one compiled function to another.

    For a plain one Numba would compile the callee, and all that it calls, once more for that very number.
    """
    return cast(int, np.int64(number))


def _fingerprint(function: Callable[Parameters, Result]) -> str:
    """Twelve hexadecimal digits that change when anything changes that the machine code is made from."""
    digest = hashlib.sha256(_HOW)
    _add_code(digest, function.__code__)
    names = set(function.__code__.co_names) | set(function.__annotations__.values())
    for name in sorted(str(name) for name in names):
        value = function.__globals__.get(name)
        compiled_function = getattr(value, "py_func", None)
        if compiled_function is not None:
            digest.update(f"{name}={compiled_function.__qualname__};".encode())
        elif isinstance(value, int | float | str | tuple | np.int64):
            digest.update(f"{name}={value!r};".encode())
        elif isinstance(value, type) and hasattr(value, "_fields"):
            digest.update(f"{name}={_fields_of(value)};".encode())
    return digest.hexdigest()[:12]


def _add_code(digest: hashlib._Hash, code: CodeType) -> None:
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        else:
            digest.update(repr(constant).encode())
    digest.update(repr((code.co_names, code.co_varnames)).encode())


def _fields_of(named_tuple: type) -> str:
    """The fields of a named tuple and their annotated types, in order."""
    return repr([(name, str(kind)) for name, kind in named_tuple.__annotations__.items()])
