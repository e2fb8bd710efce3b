"""A shorter compilation for functions that only other kernels call.

numba optimises every function and turns it into machine code, although a function that is linked
into its callers is optimised there again and its own machine code never runs. Without these steps
the kernels of the mixture compile in two thirds of the time. Functions that are inlined into hot
loops are still optimised on their own: the last bits of results depend on it.

This relies on internals of numba. Where they are missing, functions are compiled as usual.
"""

from __future__ import annotations

from typing import Any


def _linked_compiler() -> type:
    """Return numba's compiler with libraries that are linked into others and never run.

    Raises:
        AttributeError: numba has changed.
        ImportError: The same.
    """
    from numba.core import compiler, typed_passes
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler_machinery import LoweringPass, register_pass

    for step in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        getattr(JITCodeLibrary, step)

    class NoEnvironment:
        """Code generator of a function that Python does not call: it needs no environment."""

        def set_env(self, *_: Any) -> None:
            pass

    class LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
        """LLVM code without machine code."""

        is_inlined = False
        codegen = NoEnvironment()

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
    class UseLinkedLibrary(LoweringPass):  # type: ignore[misc]
        """Choose the library that the next pass writes to."""

        _name = "transcf_use_linked_library"

        def __init__(self) -> None:
            LoweringPass.__init__(self)

        def run_pass(self, state: Any) -> bool:
            library = LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            library.is_inlined = state.flags.forceinline
            state.library = library
            return True

    class LinkedCompiler(compiler.CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.add_pass_after(UseLinkedLibrary, typed_passes.AnnotateTypes)
            passes.finalize()
            return [passes]

    return LinkedCompiler


def linked_options() -> dict[str, Any]:
    """Return options of `numba.njit` for functions that only other kernels call."""
    try:
        return {"pipeline_class": _linked_compiler()}
    except (AttributeError, ImportError):
        return {}
