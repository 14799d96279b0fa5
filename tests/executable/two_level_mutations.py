"""Ways to break the passes of two levels: products, norms, exchanges and the kernels that fuse
them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, TensorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from starc.core.quasi_affine import expressions as qa
from starc.core.sharding.mesh import AxisRef
from starc.dialects import collective, isa, kernel, nn, sharding
from starc.dialects.isa_expressions import ExpressionAttr
from starc.dialects.sharding_attributes import ShardingAttr, ShardingSpec
from tests.executable.cases import decode
from tests.executable.mutations import (
    Change,
    Mutation,
    OperationT,
    drop,
    find,
    forget_the_sink,
    in_kernel,
    lose_a_reshard,
    retype,
    shifted,
    without_partial,
)

TWO_LEVELS: Final = replace(decode("gqa", (4, 2), batch=3), strategy="starscream")
SINKS: Final = replace(decode("windows", (4, 2), batch=2, context=22), strategy="starscream")
PHASES: Final = replace(decode("gqa", (2, 2), context=65), strategy="hierarchical")
CHAIN: Final = replace(PHASES, enable=("pipeline-collectives",))

XCD: Final = AxisRef("xcd")
GPU: Final = AxisRef("gpu")


def product(module: ModuleOp, parameter: str) -> nn.LinearOp:
    """The product with a parameter."""
    read = next(
        op
        for op in module.walk()
        if isinstance(op, nn.ReadOp) and op.parameter.string_value() == parameter
    )
    return next(use.operation for use in read.result.uses if isinstance(use.operation, nn.LinearOp))


def behind(value: SSAValue, kind: type[OperationT]) -> OperationT:
    """The first operation of a kind that a value reaches."""
    front = [value]
    while front:
        users = [use.operation for use in front.pop(0).uses]
        for user in users:
            if isinstance(user, kind):
                return user
            front += user.results
    raise LookupError(f"no {kind.__name__} behind the value")


def move_below(op: Operation, user: Operation) -> None:
    """An operation of one operand and ``user``, its only user, change places."""
    source, result, end = op.operands[0], op.results[0], user.results[0]
    for index, operand in enumerate(user.operands):
        if operand is result:
            user.operands[index] = source
    end.replace_all_uses_with(result)
    op.operands[0] = end
    retype(end, source.type)
    op.detach()
    block = user.parent_block()
    assert block is not None
    block.insert_op_after(op, user)


# Products and norms of two levels


def lose_the_sum(name: str) -> Change:
    """Behind a product the sum over the last of its axes is left out."""

    def change(module: ModuleOp) -> None:
        result = product(module, name).result
        spec = sharding.spec_of(result.type)
        assert spec is not None
        assert spec.partial is not None
        retype(result, without_partial(result.type, spec.partial.axes[:-1]))

    return change


def add_before_the_sum(module: ModuleOp) -> None:
    """The residual is added to what every device has of a product: each counts it."""
    reshard = behind(product(module, "decoder.o").result, sharding.ReshardOp)
    move_below(reshard, behind(reshard.outputs[0], nn.AddOp))


def split_another_loop(module: ModuleOp) -> None:
    """A weight's rows are split over the axes of its columns and its columns over those of its
    rows."""
    for op in module.walk():
        if isinstance(op, nn.ParameterOp) and op.sym_name.data == "decoder.down":
            op.properties["type"] = _exchanged(op.type)
        if isinstance(op, nn.ReadOp) and op.parameter.string_value() == "decoder.down":
            retype(op.result, _exchanged(op.result.type))


def _exchanged(type: Attribute) -> TensorType[Attribute]:
    spec = sharding.spec_of(type)
    assert spec is not None
    tensor = cast("TensorType[Attribute]", type)
    changed = ShardingSpec(spec.mesh, spec.dims[::-1], spec.partial, spec.global_shape)
    return TensorType(tensor.element_type, tensor.get_shape(), ShardingAttr(changed))


def count_local_features(module: ModuleOp) -> None:
    """The mean of squares is over the features of a device."""
    op = find(module, nn.NormScaleOp)
    op.properties["count"] = IntegerAttr(op.count.value.data // 2, i64)


def scale_one_product_less(module: ModuleOp) -> None:
    op = behind(product(module, "decoder.k").result, nn.ScaleRowsOp)
    op.result.replace_all_uses_with(op.input)
    drop(op)


def scale_one_product_twice(module: ModuleOp) -> None:
    """The factor is sunk below a product and stays in front of it, too."""
    linear = product(module, "decoder.v")
    scale = behind(linear.result, nn.ScaleRowsOp).scale
    type = cast(nn.FloatTensor, linear.operands[0].type)
    again = nn.ScaleRowsOp(linear.operands[0], scale, type)
    block = linear.parent_block()
    assert block is not None
    block.insert_op_before(again, linear)
    linear.operands[0] = again.result


def scale_below_the_activation(module: ModuleOp) -> None:
    scale = behind(product(module, "decoder.gate").result, nn.ScaleRowsOp)
    silu = behind(scale.result, nn.SiluOp)
    scale.result.replace_all_uses_with(scale.input)
    end = silu.results[0]
    later = nn.ScaleRowsOp(end, scale.scale, cast(nn.FloatTensor, end.type))
    drop(scale)
    block = silu.parent_block()
    assert block is not None
    block.insert_op_after(later, silu)
    end.replace_uses_with_if(later.result, lambda use: use.operation is not later)


# Exchanges


def sum_below_the_activation(module: ModuleOp) -> None:
    """A reshard moves below what it does not commute with."""
    reshard = behind(product(module, "decoder.gate").result, sharding.ReshardOp)
    silu = behind(reshard.outputs[0], nn.SiluOp)
    move_below(reshard, silu)


def exchange_results(module: ModuleOp) -> None:
    """Two values that travel together come out in each other's place."""
    merged = next(
        op
        for op in module.walk()
        if isinstance(op, collective.ReduceScatterOp)
        and len(op.outputs) == 2
        and op.outputs[0].type == op.outputs[1].type
    )
    inputs = merged.inputs
    merged.operands[0], merged.operands[1] = inputs[1], inputs[0]


def exchange_once(module: ModuleOp) -> None:
    """Both values that travel together are the first one."""
    merged = next(
        op
        for op in module.walk()
        if isinstance(op, collective.ReduceScatterOp) and len(op.outputs) == 2
    )
    merged.operands[1] = merged.operands[0]


def lose_the_outer_phase(module: ModuleOp) -> None:
    op = find(module, collective.AllReduceOp, inside="decoder")
    retype(op.inputs[0], without_partial(op.inputs[0].type))
    op.outputs[0].replace_all_uses_with(op.inputs[0])
    drop(op)


def sum_the_inner_level_twice(module: ModuleOp) -> None:
    """The outer phase reduces over the inner level again."""
    op = find(module, collective.AllReduceOp, inside="decoder")
    op.properties["axes"] = sharding.AxesAttr((GPU, XCD))


def gather_over_the_outer_level(module: ModuleOp) -> None:
    op = find(module, collective.AllGatherOp, inside="decoder")
    op.properties["axes"] = sharding.AxesAttr((GPU,))


def scatter_over_the_outer_level(module: ModuleOp) -> None:
    """The phases of an exchange take each other's axes."""
    scatter = find(module, collective.ReduceScatterOp, inside="decoder")
    reduce = find(module, collective.AllReduceOp, inside="decoder")
    scatter.properties["axes"], reduce.properties["axes"] = reduce.axes, scatter.axes


# Fused launches


def fused_launch(module: ModuleOp, kind: type[Operation]) -> kernel.LaunchOp:
    """A launch of products with a collective and an operation of a kind in it."""
    for op in module.walk():
        if isinstance(op, kernel.LaunchOp) and op.kind.data == "gemm":
            held = list(op.block.ops)
            has_sum = any(isinstance(inner, collective.ReduceScatterOp) for inner in held)
            if has_sum and any(isinstance(inner, kind) for inner in held):
                return op
    raise LookupError("no such launch is fused")


def activate_before_the_sum(module: ModuleOp) -> None:
    """A product's epilogue takes the activation from behind the sum of its tiles."""
    launch = fused_launch(module, nn.SiluOp)
    silu = next(op for op in launch.block.ops if isinstance(op, nn.SiluOp))
    scatter = cast(collective.ReduceScatterOp, silu.operands[0].owner)
    part = scatter.inputs[list[SSAValue](scatter.outputs).index(silu.operands[0])]
    early = nn.SiluOp(part, cast(nn.FloatTensor, part.type))
    launch.block.insert_op_before(early, scatter)
    part.replace_uses_with_if(early.results[0], lambda use: use.operation is scatter)
    silu.results[0].replace_all_uses_with(silu.operands[0])
    drop(silu)


def activate_the_other_product(module: ModuleOp) -> None:
    """The sums of two products reach the work behind them in each other's place."""
    launch = fused_launch(module, nn.SiluOp)
    silu = next(op for op in launch.block.ops if isinstance(op, nn.SiluOp))
    mul = behind(silu.results[0], nn.MulOp)
    gate, up = silu.operands[0], next(o for o in mul.operands if o is not silu.results[0])
    silu.operands[0] = up
    for index, operand in enumerate(mul.operands):
        if operand is up:
            mul.operands[index] = gate


def append_each_others_rows(module: ModuleOp) -> None:
    """Keys go to the cache of values and values to that of keys."""
    launch = fused_launch(module, nn.AppendOp)
    one, other = [op for op in launch.block.ops if isinstance(op, nn.AppendOp)]
    one.operands[0], other.operands[0] = other.operands[0], one.operands[0]


# Kernels of fused launches and of chains

GATE: Final = "decoder.gate_up"
MERGE: Final = "decoder.partial_attention"
CHAINED: Final = "decoder.o_reduce_scatter"


def lose_a_fused_signal(module: ModuleOp) -> None:
    drop(in_kernel(module, isa.SignalOp, GATE))


def push_to_the_wrong_owner(module: ModuleOp) -> None:
    put = in_kernel(module, isa.PutOp, GATE)
    put.properties["peer"] = ExpressionAttr(qa.Const(0))


def push_into_the_slot_of_another(module: ModuleOp) -> None:
    """Tiles lie in the staging buffer by something else than the rank that sent them."""
    put = in_kernel(module, isa.PutOp, GATE)
    put.properties["starts"] = type(put.starts)(
        [ExpressionAttr(qa.Const(0)), *list(put.starts.data)[1:]]
    )


def sum_before_tiles_arrive(module: ModuleOp) -> None:
    """The owner waits for one tile less than are pushed to it."""
    for op in module.walk():
        if isinstance(op, isa.WaitOp) and _is_of(op, GATE):
            op.properties["value"] = shifted(op.value, -1)


def sum_one_rank_less(module: ModuleOp) -> None:
    """The loop over the parts of a sum ends before the last rank."""
    loop = next(
        op
        for op in module.walk()
        if isinstance(op, isa.LoopOp)
        and _is_of(op, GATE)
        and any(isinstance(inner, isa.LoadOp) and inner.acquire for inner in op.body.block.ops)
    )
    loop.properties["upper"] = shifted(loop.upper, -1)


def merge_one_rank_less(module: ModuleOp) -> None:
    """The owner of a head leaves out what the last rank saw."""
    merge = next(
        op
        for op in module.walk()
        if isinstance(op, isa.VectorOp) and op.function.data == "lse_merge" and _is_of(op, MERGE)
    )
    loop = merge.parent_op()
    assert isinstance(loop, isa.LoopOp)
    loop.properties["upper"] = shifted(loop.upper, -1)


def see_positions_of_the_next_rank(module: ModuleOp) -> None:
    """The mask of keys that are dealt out takes another rank's positions."""
    step = next(
        op
        for op in module.walk()
        if isinstance(op, isa.VectorOp) and op.function.data == "softmax_step_sharded"
    )
    values = list(step.parameters.data)
    values[7] = shifted(values[7], 1)
    step.properties["parameters"] = type(step.parameters)(values)


def append_into_the_next_slot(module: ModuleOp) -> None:
    """A new key goes one position of the cache too far."""
    store = next(
        op
        for op in module.walk()
        if isinstance(op, isa.StoreOp) and op.buffer.string_value() == "decoder.k_cache"
    )
    values = list(store.starts.data)
    values[2] = shifted(values[2], -1)
    store.properties["starts"] = type(store.starts)(values)


def overlap_parts_of_a_chain(module: ModuleOp) -> None:
    """A part of the data starts in the part before it."""
    load = in_kernel(module, isa.PutOp, CHAINED)
    values = list(load.starts.data)
    values[-1] = shifted(values[-1], -8)
    load.properties["starts"] = type(load.starts)(values)


def start_a_phase_early(module: ModuleOp) -> None:
    """A phase does not wait for the one before it."""
    drop(in_kernel(module, isa.WaitOp, f"{CHAINED}_all_reduce_all_gather.1"))


def lose_the_signal_of_a_phase(module: ModuleOp) -> None:
    done = next(
        op
        for op in module.walk()
        if isinstance(op, isa.SignalOp)
        and _is_of(op, CHAINED)
        and op.counter.string_value().endswith(".done")
    )
    drop(done)


def _is_of(op: Operation, name: str) -> bool:
    """Whether an instruction is one of the kernels whose names contain ``name``."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, isa.KernelOp):
        parent = parent.parent_op()
    return parent is not None and name in parent.sym_name.data


MUTATIONS: Final[tuple[Mutation, ...]] = tuple(
    Mutation(pass_name, name, change, case, message=message)
    for pass_name, name, change, case, message in (
        ("orthogonalize-gemms", "loses-a-sum", lose_the_sum("decoder.q"), TWO_LEVELS, "replicas"),
        ("orthogonalize-gemms", "adds-before-the-sum", add_before_the_sum, TWO_LEVELS, ""),
        ("orthogonalize-gemms", "splits-another-loop", split_another_loop, TWO_LEVELS, ""),
        ("sink-norm-scale", "partial-squares", lose_a_reshard, TWO_LEVELS, "replicas"),
        ("sink-norm-scale", "counts-local-features", count_local_features, TWO_LEVELS, ""),
        ("sink-norm-scale", "misses-a-product", scale_one_product_less, TWO_LEVELS, ""),
        ("sink-norm-scale", "scales-twice", scale_one_product_twice, TWO_LEVELS, ""),
        ("sink-norm-scale", "below-silu", scale_below_the_activation, TWO_LEVELS, ""),
        ("compose-reshards", "loses-a-reshard", lose_a_reshard, TWO_LEVELS, "replicas"),
        ("compose-reshards", "moves-below-silu", sum_below_the_activation, TWO_LEVELS, ""),
        ("interchange-collectives", "loses-a-level", lose_the_sum("decoder.down"), TWO_LEVELS, ""),
        ("interchange-collectives", "below-silu", sum_below_the_activation, TWO_LEVELS, ""),
        ("hierarchical-collectives", "loses-a-phase", lose_the_outer_phase, PHASES, "replicas"),
        ("hierarchical-collectives", "sums-twice", sum_the_inner_level_twice, PHASES, ""),
        ("hierarchical-collectives", "wrong-gather", gather_over_the_outer_level, PHASES, ""),
        ("hierarchical-collectives", "swaps-axes", scatter_over_the_outer_level, PHASES, ""),
        ("merge-collectives", "swaps-results", exchange_results, TWO_LEVELS, ""),
        ("merge-collectives", "sends-one-twice", exchange_once, TWO_LEVELS, ""),
        ("fuse-compute-collectives", "early-activation", activate_before_the_sum, TWO_LEVELS, ""),
        ("fuse-compute-collectives", "swaps-sums", activate_the_other_product, TWO_LEVELS, ""),
        ("fuse-compute-collectives", "swaps-caches", append_each_others_rows, TWO_LEVELS, ""),
        ("fuse-compute-collectives", "loses-the-sink", forget_the_sink, SINKS, ""),
        ("pipeline-collectives", "loses-a-phase", lose_the_outer_phase, CHAIN, "replicas"),
        ("pipeline-collectives", "sums-twice", sum_the_inner_level_twice, CHAIN, ""),
        ("lower-to-isa", "fused-signal", lose_a_fused_signal, TWO_LEVELS, "deadlock"),
        ("lower-to-isa", "fused-owner", push_to_the_wrong_owner, TWO_LEVELS, ""),
        ("lower-to-isa", "fused-slot", push_into_the_slot_of_another, TWO_LEVELS, ""),
        ("lower-to-isa", "fused-wait", sum_before_tiles_arrive, TWO_LEVELS, ""),
        ("lower-to-isa", "fused-sum", sum_one_rank_less, TWO_LEVELS, ""),
        ("lower-to-isa", "fused-merge", merge_one_rank_less, TWO_LEVELS, ""),
        ("lower-to-isa", "sharded-mask", see_positions_of_the_next_rank, TWO_LEVELS, ""),
        ("lower-to-isa", "sharded-append", append_into_the_next_slot, TWO_LEVELS, ""),
        ("lower-to-isa", "chain-overlaps", overlap_parts_of_a_chain, CHAIN, ""),
        ("lower-to-isa", "chain-starts-early", start_a_phase_early, CHAIN, ""),
        ("lower-to-isa", "chain-signal", lose_the_signal_of_a_phase, CHAIN, "deadlock"),
        ("verify-schedule", "fused-signal", lose_a_fused_signal, TWO_LEVELS, "deadlock"),
    )
)
