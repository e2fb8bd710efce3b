"""Kernels that are compiled apart from their callers, and called by address.

A function that is compiled into its callers cannot be compiled before them or at the same time. One
that is compiled apart can be compiled by another process meanwhile (`ahead`), at the price of
passing its arguments in memory: for large functions that are called some thousand times a second.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.types.containers import StarArgTuple
from numba.extending import intrinsic

from .ahead import Job


def address_of(job: Job) -> int:
    """Compile a kernel, unless that is done; return its address."""
    job.kernel.compile(job.types)
    result = job.kernel.overloads[job.types]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


@intrinsic
def call_at(typing: Any, address: Any, *args: Any) -> Any:
    """Call a kernel that returns a float64; arguments have exactly the types it is compiled for."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kinds, convention = tuple(signature.args[1]), context.call_conv
        kind = convention.get_function_type(types.float64, kinds)
        kernel = builder.inttoptr(given[0], ir.PointerType(kind))
        values = cgutils.unpack_tuple(builder, given[1])
        return convention.call_function(builder, kernel, types.float64, kinds, values)[1]

    return types.float64(types.intp, StarArgTuple(args)), generate
