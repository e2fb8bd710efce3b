"""Decorators of kernels: numba functions that are kept on disk, or compiled into their callers.

numba optimises every function and turns it into machine code, although a function that is linked
into its callers is optimised there again and its own machine code never runs. `_LINKED` leaves
these steps out: the kernels of the mixture compile in two thirds of the time. Functions that are
inlined into hot loops are still optimised on their own: the last bits of results depend on it. This
relies on internals of numba.
"""

from collections.abc import Callable
from functools import partial, update_wrapper
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import compiler, options, typed_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import LoweringPass, register_pass

from transcf.parallel import parallel_for

from ._cache import Keeper

Function = TypeVar("Function", bound=Callable[..., Any])


class _NoEnvironment:
    """Code generator of a function that Python does not call: it needs no environment."""

    def set_env(self, *_: Any) -> None:
        pass


class _LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """LLVM code without machine code."""

    is_inlined = False
    codegen = _NoEnvironment()

    def _optimize_final_module(self) -> None:
        if self.is_inlined:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


@register_pass(mutates_CFG=False, analysis_only=False)
class _UseLinkedLibrary(LoweringPass):  # type: ignore[misc]
    """Choose the library that the next pass writes to."""

    _name = "transcf_use_linked_library"

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        library = _LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        library.is_inlined = state.flags.forceinline
        state.library = library
        return True


class _LinkedCompiler(compiler.CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_UseLinkedLibrary, typed_passes.AnnotateTypes)
        passes.finalize()
        return [passes]


# Sums may be reassociated and multiply-adds fused, but NaN and infinity keep their meaning:
# divergence has to stay visible.
_RELAXED: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
#: For functions that Python calls.
_CALLED: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
#: For functions that only kernels call: an entry point for Python takes as long to compile as many
#: a function.
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_LINKED: dict[str, Any] = {"pipeline_class": _LinkedCompiler}
#: Without reference counts, if this version of numba can leave them out: an atomic step for every
#: array of every call.
_UNCOUNTED: dict[str, Any] = {"_nrt": False} if hasattr(options.DefaultOptions, "_nrt") else {}
#: For the pieces of a hot loop, where a call would cost as much as the work. They make no arrays,
#: and their arguments outlive them.
INLINED: dict[str, Any] = {"forceinline": True, **_UNCOUNTED, **_INNER, **_RELAXED, **_LINKED}
_HERE = Path(__file__).resolve().parent
_SCORES = _HERE.parent / "models" / "transcf" / "score_functions.py"
_keeper = Keeper([*_HERE.glob("*.py"), _SCORES])


def compiled(function: Function) -> Function:
    """Compile a function to machine code on first use and keep the result on disk."""
    return cast(Function, _keeper.keep(numba.njit(**_CALLED, **_RELAXED)(function)))


def shared(
    parts: Callable[..., Any], share: Callable[[Any, Any], None] = parallel_for
) -> Callable[[Function], Callable[..., None]]:
    """Like `compiled`, for a function that threads share: its last arguments are a range of parts.

    Callers leave the range out: `share(parts(*arguments), work)` calls `work` with ranges.
    """

    def decorate(function: Function) -> Callable[..., None]:
        kernel: Any = compiled(function)
        arguments = signature(function)

        def call(*args: Any, **more: Any) -> None:
            given = arguments.bind_partial(*args, **more).args
            share(parts(*given), partial(kernel, *given))

        call.compile = kernel.compile  # type: ignore[attr-defined]  # for `ahead`
        return update_wrapper(call, function)

    return decorate


def compiled_strictly(function: Function) -> Function:
    """Like `compiled`, but nothing about the arithmetic is relaxed."""
    return cast(Function, _keeper.keep(numba.njit(**_CALLED, error_model="numpy")(function)))


def apart(function: Function) -> Function:
    """Like `compiled`, for a function that kernels call by its address."""
    return cast(Function, _keeper.keep(numba.njit(**_INNER, **_RELAXED)(function)))


def inner(function: Function) -> Function:
    """Compile a function that only other kernels call, into these."""
    return cast(Function, numba.njit(**_INNER, **_LINKED, **_RELAXED)(function))


def pasted(function: Function) -> Function:
    """Like `inner`, for a function with one caller: it is compiled as part of its text."""
    return cast(Function, numba.njit(inline="always", **_INNER, **_RELAXED)(function))


def inlined(function: Function) -> Function:
    """Like `inner`, for the pieces of a hot loop; they make no arrays."""
    return cast(Function, numba.njit(**INLINED)(function))
