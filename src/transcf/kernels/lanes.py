"""Sixteen numbers at a time: a vector type for kernels.

A compiler may only vectorise a loop when it can prove that the rows it reads and writes never
overlap, and here it cannot: two item rows live in one array. A `Lanes` value is sixteen
neighbouring numbers of an array, read at once, computed with `+ - * /` (and a leading
minus) and written at once, so every kernel is vectorised by construction and still reads like the
formula it implements.

    total = fill(zero)
    for k in range(0, dim, LANES):
        e = load(users, u + k) - load(items, i + k)
        total = total + e * e
    distance = sum_lanes(total)
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import (
    intrinsic,
    lower_builtin,
    models,
    overload,
    register_model,
    type_callable,
)

LANES = 16
_RELAXED = ("contract", "reassoc", "nsz", "arcp")


class Lanes(types.Type):
    """The compile-time type of sixteen floats of one width."""

    def __init__(self, dtype: types.Float) -> None:
        """Name the type after its element."""
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


def _vector(dtype: types.Float) -> ir.VectorType:
    element = ir.FloatType() if dtype.bitwidth == 32 else ir.DoubleType()
    return ir.VectorType(element, LANES)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, _vector(lanes.dtype))


def element_address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Return a pointer to an element of a one-dimensional array, for intrinsics."""
    data = context.make_array(array_type)(context, builder, array).data
    element = context.get_data_type(array_type.dtype)
    return builder.gep(data, [index], source_etype=element)


@intrinsic
def load(typing: Any, array: Any, start: Any) -> Any:
    """Read sixteen numbers of a one-dimensional array from `start` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = element_address(context, builder, signature.args[0], *args)
        dtype = signature.args[0].dtype
        return builder.load(address, align=dtype.bitwidth // 8, typ=_vector(dtype))

    return Lanes(array.dtype)(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, start: Any, value: Any) -> Any:
    """Write sixteen numbers into a one-dimensional array from `start` on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = element_address(context, builder, signature.args[0], *args[:2])
        dtype = signature.args[0].dtype
        if not getattr(address.type, "is_opaque", True):  # numba still has typed pointers
            address = builder.bitcast(address, ir.PointerType(_vector(dtype)))
        builder.store(args[2], address, align=dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), generate


def _prefetch(is_written: bool) -> Any:
    """Return code for an intrinsic of an array and an index, which prefetches the cache line."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = element_address(context, builder, signature.args[0], *args)
        pointer, flag = ir.PointerType(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        flags = (ir.Constant(flag, n) for n in (int(is_written), 3, 1))
        builder.call(function, [address, *flags])
        return context.get_dummy_value()

    return generate


@intrinsic
def prefetch(typing: Any, array: Any, start: Any) -> Any:
    """Prefetch the cache line of `array[start]`, which will be written soon."""
    return types.void(array, types.intp), _prefetch(is_written=True)


@intrinsic
def prefetch_for_reading(typing: Any, array: Any, start: Any) -> Any:
    """Prefetch the cache line of `array[start]`, which will be read soon."""
    return types.void(array, types.intp), _prefetch(is_written=False)


@intrinsic
def fill(typing: Any, value: Any) -> Any:
    """Repeat one number sixteen times."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _vector(signature.args[0])
        one = builder.insert_element(
            ir.Constant(vector, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0)
        )
        same = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), same)

    return Lanes(value)(value), generate


def zeros(like: Any) -> Any:
    """Zeros of the same type as `like`: an array in Python, sixteen numbers in kernels.

    There, adding them costs nothing.
    """
    return np.zeros_like(like)


@type_callable(zeros)
def _type_zeros(context: Any) -> Any:
    return lambda like: like if isinstance(like, Lanes) else None


@lower_builtin(zeros, Lanes)
def _zeros(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return ir.Constant(_vector(signature.return_type.dtype), [0.0] * LANES)


@intrinsic
def sum_lanes(typing: Any, lanes: Any) -> Any:
    """Add the sixteen numbers, always in the same order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        index = ir.IntType(32)
        rest, width = args[0], LANES
        while width > 1:
            width //= 2
            halves = []
            for first in (0, width):
                mask = [first + n for n in range(width)]
                mask_type = ir.VectorType(index, width)
                halves.append(builder.shuffle_vector(rest, rest, ir.Constant(mask_type, mask)))
            rest = builder.fadd(*halves)
        return builder.extract_element(rest, ir.Constant(index, 0))

    return lanes.dtype(lanes), generate


@intrinsic
def sqrt_lanes(typing: Any, lanes: Any) -> Any:
    """Square roots of the sixteen numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _vector(signature.args[0].dtype)
        name = f"llvm.sqrt.v{LANES}f{signature.args[0].dtype.bitwidth}"
        root = builder.module.declare_intrinsic(name, (), ir.FunctionType(vector, [vector]))
        return builder.call(root, args)

    return lanes(lanes), generate


def _define(symbol: Callable[[Any, Any], Any], instruction: str) -> None:
    """Give `Lanes` one arithmetic operator."""

    @intrinsic
    def apply(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args, flags=_RELAXED)

        return left(left, right), generate

    @overload(symbol)
    def operate(left: Any, right: Any) -> Any:
        def implementation(left: Any, right: Any) -> Any:
            return apply(left, right)

        return implementation if isinstance(left, Lanes) and left == right else None


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_symbol, _instruction)


@overload(operator.neg)
def _minus(lanes: Any) -> Any:
    def implementation(lanes: Any) -> Any:
        return zeros(lanes) - lanes

    return implementation if isinstance(lanes, Lanes) else None
