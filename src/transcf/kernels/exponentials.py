"""Exponentials and logarithms of sixteen numbers at a time, in float32.

The usual way: x = n ln 2 + r with n whole, a polynomial for e^r, and n put into the exponent of the
result; backwards for logarithms. The error is below three units in the last place. Exponentials
below -87 are about 1e-38 rather than 0, above 88 about 1e38 rather than infinity, and NaN stays
NaN. Logarithms are of positive, finite numbers that are not denormal.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from .lanes import LANES

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
