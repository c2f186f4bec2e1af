"""Vector operations that Numba's own vectoriser does not find, written in LLVM's portable vector IR.

LLVM lowers them to whatever the processor has (AVX-512, AVX2, SSE2, NEON), so one source serves every machine and the
result is the same integer everywhere. Addresses are plain integers; callers guarantee that the memory is there.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 64
SQUARE = 16
LEAST_MOVE = 16

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _splat(builder: Any, value: Any) -> Any:
    kind = ir.VectorType(value.type, LANES)
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


@intrinsic
def weigh(_context, source, stride, weights, taps, shift, target):  # type: ignore[no-untyped-def]
    """Weighted sum of ``taps`` rows of 64 bytes: ``target[i] = clip8((2^(shift-1) + Σ source[j][i]·w[j]) >> shift)``.

    ``source`` and ``target`` are addresses of bytes, rows lie ``stride`` bytes apart, ``weights`` is the address of
    ``taps`` int32. The accumulators stay in registers over all taps.
    """
    signature = types.void(*[types.int64] * 6)

    def generate(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        source, stride, weights, taps, shift, target = arguments
        bytes_, words = ir.VectorType(_I8, LANES), ir.VectorType(_I32, LANES)
        narrow = builder.trunc(shift, _I32)
        one = ir.Constant(_I32, 1)
        total = cgutils.alloca_once(builder, words)
        builder.store(_splat(builder, builder.shl(one, builder.sub(narrow, one))), total)
        with cgutils.for_range(builder, taps, intp=_I64) as loop:
            row = builder.add(source, builder.mul(loop.index, stride))
            weight = _load(builder, builder.add(weights, builder.mul(loop.index, ir.Constant(_I64, 4))), _I32)
            values = builder.zext(_load(builder, row, bytes_), words)
            product = builder.mul(values, _splat(builder, weight))
            builder.store(builder.add(builder.load(total), product), total)
        result = builder.ashr(builder.load(total), _splat(builder, narrow))
        low, high = ir.Constant(words, [0] * LANES), ir.Constant(words, [255] * LANES)
        result = builder.select(builder.icmp_signed("<", result, low), low, result)
        result = builder.select(builder.icmp_signed(">", result, high), high, result)
        _store(builder, builder.trunc(result, bytes_), target)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def transpose(_context, source, source_stride, target, target_stride):  # type: ignore[no-untyped-def]
    """Transpose a square of 16 x 16 bytes between two addresses whose rows lie the given strides apart.

    Four rounds, each of which interleaves row i with row i + 8: after log2(16) of them, rows have become columns.
    """
    signature = types.void(*[types.int64] * 4)

    def generate(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        source, source_stride, target, target_stride = arguments
        row, order = ir.VectorType(_I8, SQUARE), ir.VectorType(_I32, SQUARE)
        half = SQUARE // 2
        low = ir.Constant(order, [index for i in range(half) for index in (i, SQUARE + i)])
        high = ir.Constant(order, [index for i in range(half) for index in (half + i, SQUARE + half + i)])

        def at(base: Any, stride: Any, index: int) -> Any:
            return builder.add(base, builder.mul(stride, ir.Constant(_I64, index)))

        rows = [_load(builder, at(source, source_stride, i), row) for i in range(SQUARE)]
        for _ in range(4):
            pairs = [(rows[i], rows[i + half]) for i in range(half)]
            rows = [builder.shuffle_vector(a, b, pick) for a, b in pairs for pick in (low, high)]
        for index, value in enumerate(rows):
            _store(builder, value, at(target, target_stride, index))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def move(_context, target, source, size):  # type: ignore[no-untyped-def]
    """Copy ``size`` >= 16 bytes between addresses that don't overlap, in vectors.

    The last vector ends where the data ends and overlaps its predecessor, so there is no tail to copy byte by byte.
    """
    signature = types.void(*[types.int64] * 3)

    def generate(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        target, source, size = arguments

        def copy(width: int) -> None:
            kind = ir.VectorType(_I8, width)
            step = ir.Constant(_I64, width)
            last = builder.sub(size, step)
            with cgutils.for_range_slice(builder, ir.Constant(_I64, 0), last, step, intp=_I64) as (offset, _):
                _store(builder, _load(builder, builder.add(source, offset), kind), builder.add(target, offset))
            _store(builder, _load(builder, builder.add(source, last), kind), builder.add(target, last))

        wide = builder.icmp_signed(">=", size, ir.Constant(_I64, 2 * LEAST_MOVE))
        with builder.if_else(wide) as (long, short):
            with long:
                copy(2 * LEAST_MOVE)
            with short:
                copy(LEAST_MOVE)
        return context.get_dummy_value()

    return signature, generate
