"""Vector operations that Numba's own vectoriser does not find, written in LLVM's portable vector IR.

LLVM lowers them to whatever the processor has (AVX-512, AVX2, SSE2, NEON), so one source serves every machine and the
result is the same integer everywhere. Addresses are plain integers; callers guarantee that the memory is there.
"""

from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

LANES = 64
SQUARE = 16
LEAST_MOVE = 16

# Byte dot products (AVX-512 VNNI): four taps in one instruction, which LLVM does not find by itself.
DOTS = "+avx512vnni" in cpu_target.target_context.codegen().magic_tuple()[2].split(",")

if DOTS:
    binding.initialize_native_asmparser()

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer())).align = 1


def _splat(builder: Any, value: Any, lanes: int = LANES) -> Any:
    kind = ir.VectorType(value.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


@intrinsic
def weigh_products(_context, source, stride, weights, taps, shift, target):  # type: ignore[no-untyped-def]
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


def _assembly(builder: Any, instruction: str, kind: Any, constraint: str, *arguments: Any) -> Any:
    signature = ir.FunctionType(kind, [argument.type for argument in arguments])
    return builder.call(ir.InlineAsm(signature, instruction, constraint), arguments)


def _zip(builder: Any, a: Any, b: Any, step: int, upper: bool) -> Any:
    """Interleave units of ``step`` bytes of the lower or ``upper`` halves of the 16-byte lanes of ``a`` and ``b``."""
    picked = []
    for lane in range(0, LANES, 16):
        for unit in range(lane + 8 * upper, lane + 8 * upper + 8, step):
            picked += [*range(unit, unit + step), *range(LANES + unit, LANES + unit + step)]
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, LANES), picked))


@intrinsic
def weigh_dots(_context, source, stride, digits, taps, shift, target):  # type: ignore[no-untyped-def]
    """The same as ``weigh_products`` by byte dot products; only where ``DOTS``.

    ``digits`` is the address of ``filters.Axis.digits``: for each four taps three int32 of four signed bytes. A weight
    is ``(d0 * 256 + d1) * 256 + d2``, so three sums of bytes times bytes make the whole, exactly. Rows past the last
    tap weigh nothing; the last one is read in their place, because there need be none.
    """
    signature = types.void(*[types.int64] * 6)

    def generate(context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        source, stride, digits, taps, shift, target = arguments
        bytes_, words = ir.VectorType(_I8, LANES), ir.VectorType(_I32, 16)
        narrow, one = builder.trunc(shift, _I32), ir.Constant(_I32, 1)
        half = _splat(builder, builder.shl(one, builder.sub(narrow, one)), 16)
        start = [ir.Constant(words, [0] * 16), ir.Constant(words, [0] * 16), half]
        totals = [[cgutils.alloca_once_value(builder, start[digit]) for digit in range(3)] for _ in range(4)]

        def constant(value: int) -> Any:
            return ir.Constant(_I64, value)

        last = builder.sub(taps, constant(1))
        groups = builder.lshr(builder.add(taps, constant(3)), constant(2))
        with cgutils.for_range(builder, groups, intp=_I64) as loop:
            rows = []
            for tap in range(4):
                index = builder.add(builder.shl(loop.index, constant(2)), constant(tap))
                index = builder.select(builder.icmp_signed("<", index, last), index, last)
                rows.append(_load(builder, builder.add(source, builder.mul(index, stride)), bytes_))
            left = [_zip(builder, rows[0], rows[1], 1, upper) for upper in (False, True)]
            right = [_zip(builder, rows[2], rows[3], 1, upper) for upper in (False, True)]
            quads = [_zip(builder, a, b, 2, upper) for a, b in zip(left, right, strict=True) for upper in (False, True)]
            group = builder.add(digits, builder.mul(loop.index, constant(12)))
            for digit in range(3):
                four = _splat(builder, _load(builder, builder.add(group, constant(4 * digit)), _I32), 16)
                for quad, total in zip(quads, totals, strict=True):
                    sums = builder.load(total[digit])
                    arguments = (sums, builder.bitcast(quad, words), four)
                    sums = _assembly(builder, "vpdpbusd $3, $2, $0", words, "=v,0,v,v", *arguments)
                    builder.store(sums, total[digit])
        eight, fraction = ir.Constant(words, [8] * 16), _splat(builder, narrow, 16)
        whole = []
        for total in totals:
            high, middle, low = (builder.load(sums) for sums in total)
            value = builder.add(builder.shl(builder.add(builder.shl(high, eight), middle), eight), low)
            whole.append(builder.ashr(value, fraction))
        # Both pack by 16-byte lanes, which undoes the order of _zip, and clip at the ends of the type.
        halves = [_assembly(builder, "vpackssdw $2, $1, $0", words, "=v,v,v", *whole[i : i + 2]) for i in (0, 2)]
        packed = _assembly(builder, "vpackuswb $2, $1, $0", words, "=v,v,v", *halves)
        _store(builder, builder.bitcast(packed, bytes_), target)
        return context.get_dummy_value()

    return signature, generate


weigh = weigh_dots if DOTS else weigh_products


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
