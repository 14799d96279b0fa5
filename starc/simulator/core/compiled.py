"""How the functions of the event core are compiled, and how the same source runs without that.

``compiled`` functions have machine code of their own, kept on disk between runs, and so have those
that Python calls, each an ``entry``; ``inlined`` ones become part of their callers. No function
allocates, so reference counting is off. ``interpreted`` turns a compiled function back into plain
Python, with all the functions that it calls: an oracle for the compiled core.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast

import numba.core.config
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic  # pyright: ignore[reportPrivateUsage]
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_njit: Any = numba.njit
_config: Any = numba.core.config


@lru_cache
def cache_directory() -> str:
    """Where machine code is kept. The name has a digest of the core's source and of the numbers
    and records that it knows: a function is machine code of all that is inlined into it, of which
    numba's own index knows one file."""
    digest = hashlib.sha256(numba.__version__.encode())
    core = Path(__file__).parent
    for folder in (core, core.parent / "state"):
        for source in sorted(folder.rglob("*.py")):
            digest.update(source.read_bytes())
    name = f"starc-{digest.hexdigest()[:16]}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for parent in (os.environ.get("NUMBA_CACHE_DIR"), os.path.join(home, "starc")):
        if parent:
            try:
                os.makedirs(os.path.join(parent, name), exist_ok=True)
            except OSError:
                continue
            return os.path.join(parent, name)
    return os.path.join(tempfile.gettempdir(), name)


# Said aloud, as a function takes over what it leaves open from an inlined caller. Wrappers for
# callers that are not compiled would hold a copy of the function each, and are left out: they take
# as long to make as the function itself.
_INSIDE: Final = {
    "_nrt": False,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def compiled(function: Function) -> Function:
    """Machine code with an entry of its own, for other compiled functions."""
    return _cached(function, _INSIDE)


def entry(function: Function) -> Function:
    """Machine code that Python calls."""
    return _cached(function, _INSIDE | {"no_cpython_wrapper": False})


def inlined(function: Function) -> Function:
    """Machine code inside each caller."""
    return _njit(**_INSIDE, forceinline=True)(function)


def _cached(function: Function, options: Mapping[str, bool | str]) -> Function:
    before = _config.CACHE_DIR
    _config.CACHE_DIR = cache_directory()
    try:
        return _njit(**options, cache=True, forceinline=False)(function)
    finally:
        _config.CACHE_DIR = before


def _apart(_: Any) -> Any:

    def lower(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.function.attributes.add("noinline")
        return target.get_dummy_value()

    return types.void(), lower


apart: Any = intrinsic(_apart)
"""``apart()`` at the beginning of a compiled function keeps it out of its callers. Functions that
are called from many places, or seldom, would make the event loop too large for the host's cache of
instructions."""


def _nothing(*_: Any) -> None:
    """What a hint to the host, such as a prefetch, is in plain Python."""


def in_plain_python(instructions: Any, function: Callable[..., Any]) -> Any:
    """Instructions of the host, which ``function`` stands for where nothing is compiled."""
    instructions.in_plain_python = function
    return instructions


def interpreted(function: Any) -> Callable[..., Any]:
    """The Python function of a compiled one, whose callees are Python functions too."""
    done: dict[Any, FunctionType] = {}

    def convert(dispatcher: Any) -> FunctionType:
        if dispatcher in done:
            return done[dispatcher]
        source: FunctionType = dispatcher.py_func
        names: dict[str, Any] = dict(source.__globals__)
        plain = FunctionType(source.__code__, names, source.__name__, source.__defaults__)
        done[dispatcher] = plain
        for name in source.__code__.co_names:
            callee = names.get(name)
            if isinstance(callee, Dispatcher):
                names[name] = convert(callee)
            elif isinstance(callee, _Intrinsic):
                names[name] = getattr(cast(Any, callee), "in_plain_python", _nothing)
        return plain

    return convert(function)
