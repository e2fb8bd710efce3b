"""A vector type for kernels: sixteen numbers at a time.

A compiler may only vectorise a loop if it can prove that the rows it reads and writes never
overlap, and here it cannot: two item rows live in one array. A `Lanes` value is sixteen
neighbouring numbers of an array, read at once, computed with `+ - * /` (and a leading minus) and
written at once, so that every kernel is vectorised by construction and reads like its formula.

    total = fill(zero)
    for k in range(0, dim, LANES):
        e = load(users, u + k) - load(items, i + k)
        total = total + e * e
    distance = sum_lanes(total)

Exponentials and logarithms are in float32, with an error below three units in the last place:
x = n ln 2 + r with an integer n, a polynomial for e^r, and n added to the exponent of the result;
backwards for logarithms. Exponentials below -87 are about 1e-38 rather than 0, above 88 about 1e38
rather than infinity, and NaN stays NaN. Logarithms are of positive, finite, normal numbers.
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


def _reduced(builder: Any, lanes: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Combine sixteen numbers half by half, always in the same order."""
    index, width = ir.IntType(32), LANES
    while width > 1:
        width //= 2
        masks = [
            ir.Constant(ir.VectorType(index, width), [first + n for n in range(width)])
            for first in (0, width)
        ]
        lanes = combine(*(builder.shuffle_vector(lanes, lanes, mask) for mask in masks))
    return builder.extract_element(lanes, ir.Constant(index, 0))


@intrinsic
def sum_lanes(typing: Any, lanes: Any) -> Any:
    """Add the sixteen numbers, always in the same order."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _reduced(builder, args[0], builder.fadd)

    return lanes.dtype(lanes), generate


@intrinsic
def largest_lane(typing: Any, lanes: Any) -> Any:
    """The largest of sixteen numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def larger(left: Any, right: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", left, right), left, right)

        return _reduced(builder, args[0], larger)

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


_LOWEST, _HIGHEST = -87.0, 88.0
_LOG2_E = 1.4426950408889634
#: ln 2 in two parts, the first of which has few digits: n times it is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
#: (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, interpolated at Chebyshev points, highest power first.
_TERMS = (1.989108e-4, 1.3933731e-3, 8.3333108e-3, 4.1666464e-2, 1.6666667e-1, 0.5)
#: (log(1 + f) - f) / f^2 where 1 + f is between the roots of 1/2 and 2, in the same way.
_LOG_TERMS = (
    -0.07673989, 0.12723242, -0.13127697, 0.14204793, -0.16626626, 0.20001236, -0.25000782,
    0.3333333, -0.49999998,
)  # fmt: skip
_BIAS, _MANTISSA = 127, 23
#: The bits of the root of 1/2: from there on the exponent counts.
_ROOT_OF_HALF = 0x3F3504F3
_FUSED = ("contract",)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_WHOLE = ir.VectorType(ir.IntType(32), LANES)


def _tools(builder: Any) -> tuple[Callable[..., Any], ...]:
    """Return what formulas are written with: constants of both types, sums and products."""

    def constant(value: float) -> Any:
        return ir.Constant(_FLOATS, [value] * LANES)

    def same(value: int) -> Any:
        return ir.Constant(_WHOLE, [value] * LANES)

    def add(left: Any, right: Any) -> Any:
        return builder.fadd(left, right, flags=_FUSED)

    def times(left: Any, right: Any) -> Any:
        return builder.fmul(left, right, flags=_FUSED)

    return constant, same, add, times


@intrinsic
def exp_lanes(typing: Any, lanes: Any) -> Any:
    """E to the power of each of sixteen float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        constant, same, add, times = _tools(builder)
        x = args[0]
        for order, bound in (("<", _LOWEST), (">", _HIGHEST)):
            beyond = builder.fcmp_ordered(order, x, constant(bound))
            x = builder.select(beyond, constant(bound), x)
        kind = ir.FunctionType(_FLOATS, [_FLOATS])
        nearest = builder.module.declare_intrinsic(f"llvm.rint.v{LANES}f32", (), kind)
        n = builder.call(nearest, [times(x, constant(_LOG2_E))])
        r = add(x, times(n, constant(-_LN2_HIGH)))
        r = add(r, times(n, constant(-_LN2_LOW)))
        series = constant(_TERMS[0])
        for term in _TERMS[1:]:
            series = add(times(series, r), constant(term))
        result = add(add(times(series, times(r, r)), r), constant(1.0))
        exponent = builder.add(builder.fptosi(n, _WHOLE), same(_BIAS))
        scale = builder.shl(exponent, same(_MANTISSA))
        return builder.fmul(result, builder.bitcast(scale, _FLOATS))

    return lanes(lanes), generate


@intrinsic
def log_lanes(typing: Any, lanes: Any) -> Any:
    """Natural logarithms of sixteen positive float32 numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        constant, same, add, times = _tools(builder)
        bits = builder.bitcast(args[0], _WHOLE)
        above = builder.ashr(builder.sub(bits, same(_ROOT_OF_HALF)), same(_MANTISSA))
        fraction = builder.sub(bits, builder.shl(above, same(_MANTISSA)))
        f = add(builder.bitcast(fraction, _FLOATS), constant(-1.0))
        n = builder.sitofp(above, _FLOATS)
        series = constant(_LOG_TERMS[0])
        for term in _LOG_TERMS[1:]:
            series = add(times(series, f), constant(term))
        result = add(times(n, constant(_LN2_LOW)), times(series, times(f, f)))
        return add(add(result, f), times(n, constant(_LN2_HIGH)))

    return lanes(lanes), generate


@intrinsic
def max_lanes(typing: Any, left: Any, right: Any) -> Any:
    """The larger of each two numbers; the right one where the left is NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return left(left, right), generate
