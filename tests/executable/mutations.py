"""Ways to break a pass: what is done to the module that the pass leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import (
    FloatAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from starc.core.quasi_affine import expressions as qa
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import Partial
from starc.core.sharding.mesh import AxisRef
from starc.core.sharding.shard_map import Cyclic
from starc.dialects import collective, isa, kernel, nn, sharding
from starc.dialects.isa_expressions import ExpressionAttr
from starc.dialects.kernel_attributes import integers, symbols
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.sharding_attributes import ShardingAttr, ShardingSpec
from tests.executable.cases import Case, decode, prefill

Change: TypeAlias = Callable[[ModuleOp], None]
OperationT = TypeVar("OperationT", bound=Operation)

MHA: Final = decode("mha", (2, 2), batch=2)
DEEP: Final = decode("deep", (2, 2), batch=1, context=300)
PARALLEL: Final = decode("parallel", (2, 2), batch=2)
PROMPT: Final = prefill("gqa", (2, 2), prompt=9)


SPLIT: Final = replace(
    decode("windows", (4, 2), batch=2, context=22), enable=("shard-attention-sequence",)
)


@dataclass(frozen=True)
class Mutation:
    """A pass is broken by ``change``, which runs after it; the passes up to ``until`` follow, and
    then the module must be found wrong. ``message`` is in what the harness says."""

    pass_name: str
    name: str
    change: Change
    case: Case = MHA
    until: str | None = None
    message: str = ""

    def __str__(self) -> str:
        return f"{self.pass_name}:{self.name}"


def find(module: ModuleOp, kind: type[OperationT], index: int = 0, inside: str = "") -> OperationT:
    """The operation of a kind, counted from 0 (from -1 backwards), in symbols whose name contains
    ``inside``."""
    found = [op for op in module.walk() if isinstance(op, kind) and inside in _symbol_around(op)]
    return found[index]


def _symbol_around(op: Operation) -> str:
    names: list[str] = []
    current: Operation | None = op
    while current is not None:
        for key in ("sym_name", "label"):
            name = current.properties.get(key)
            if isinstance(name, StringAttr):
                names.append(name.data)
        current = current.parent_op()
    return " ".join(names)


def without_partial(type: Attribute, axes: tuple[AxisRef, ...] = ()) -> TensorType[Attribute]:
    """The type as if the value were complete, or partial over ``axes`` alone."""
    spec = sharding.spec_of(type)
    assert spec is not None
    partial = Partial(ReductionKind.SUM, axes) if axes else None
    tensor = cast("TensorType[Attribute]", type)
    changed = ShardingSpec(spec.mesh, spec.dims, partial, spec.global_shape)
    return TensorType(tensor.element_type, tensor.get_shape(), ShardingAttr(changed))


def retype(value: SSAValue, type: Attribute) -> None:
    Rewriter.replace_value_with_new_type(value, type)


def drop(op: Operation) -> None:
    op.detach()
    op.erase(safe_erase=False)


def shifted(expression: ExpressionAttr, amount: int) -> ExpressionAttr:
    return ExpressionAttr(qa.Add(expression.data, qa.Const(amount)))


# The levels of values


def swap_query_and_key_weights(module: ModuleOp) -> None:
    reads = [op for op in module.walk() if isinstance(op, nn.ReadOp)]
    named = {op.parameter.string_value(): op for op in reads}
    q, k = named["decoder.q"], named["decoder.k"]
    q.properties["parameter"], k.properties["parameter"] = (
        k.properties["parameter"],
        q.properties["parameter"],
    )


def start_rope_late(module: ModuleOp) -> None:
    rope = find(module, nn.RopeOp)
    rope.properties["start"] = IntegerAttr(rope.start.value.data + 1, i64)


def append_one_position_early(module: ModuleOp) -> None:
    append = find(module, nn.AppendOp)
    append.properties["start"] = IntegerAttr(append.start.value.data - 1, i64)


def forget_the_mask(module: ModuleOp) -> None:
    del find(module, nn.AttentionOp).properties["causal"]


def forget_the_scale(module: ModuleOp) -> None:
    find(module, nn.AttentionOp).properties["scale"] = FloatAttr(1.0, 64)


def lose_the_residual(module: ModuleOp) -> None:
    add = find(module, nn.AddOp)
    add.operands[0] = add.operands[1]


def lose_a_reshard(module: ModuleOp) -> None:
    """The result of a row-parallel linear is taken for complete."""
    reshard = find(module, sharding.ReshardOp, inside="decoder")
    source = reshard.inputs[0]
    retype(source, without_partial(source.type))
    reshard.outputs[0].replace_all_uses_with(source)
    drop(reshard)


def take_a_partial_for_complete(module: ModuleOp) -> None:
    """The reshard is there, but behind the addition of the residual."""
    reshard = find(module, sharding.ReshardOp, inside="decoder")
    source, result = reshard.inputs[0], reshard.outputs[0]
    add = next(use.operation for use in result.uses)
    for index, operand in enumerate(add.operands):
        if operand is result:
            add.operands[index] = source
    complete = add.results[0]
    whole, partial = complete.type, source.type
    retype(complete, partial)
    later = sharding.ReshardOp([complete], [cast("TensorType[Attribute]", whole)])
    block = add.parent_block()
    assert block is not None
    block.insert_op_after(later, add)
    complete.replace_uses_with_if(later.outputs[0], lambda use: use.operation is not later)
    drop(reshard)


def reduce_over_one_axis(module: ModuleOp) -> None:
    op = find(module, collective.AllReduceOp, inside="decoder")
    op.properties["axes"] = sharding.AxesAttr((AxisRef("xcd"),))


def lose_an_all_reduce(module: ModuleOp) -> None:
    op = find(module, collective.AllReduceOp, index=-1, inside="decoder")
    source = op.inputs[0]
    retype(source, without_partial(source.type))
    op.outputs[0].replace_all_uses_with(source)
    drop(op)


def reduce_by_maximum(module: ModuleOp) -> None:
    op = find(module, collective.AllReduceOp, inside="decoder")
    op.properties["reduction"] = StringAttr("max")


def gather_instead_of_embedding_sum(module: ModuleOp) -> None:
    """The embedding's sum over devices is left out, each has the rows of its own vocabulary."""
    op = find(module, collective.AllReduceOp, inside="embedding")
    source = op.inputs[0]
    retype(source, without_partial(source.type))
    op.outputs[0].replace_all_uses_with(source)
    drop(op)


# Kernels


def send_a_token_to_another_owner(module: ModuleOp) -> None:
    """New keys travel as if the first new token had position 0."""
    append = find(module, nn.AppendOp)
    type = cast(sharding.AnyTensor, append.input.type)
    encoding = sharding.encoding_of(type, module)
    assert encoding is not None
    wrong = encoding.with_dim(1, encoding.dims[1].axes, Cyclic(1, 0, 0))
    retype(append.input, sharding.global_type(type, wrong))


def see_a_wider_window(module: ModuleOp) -> None:
    """A window of positions is taken for one of the local ones."""
    op = find(module, nn.PartialAttentionOp)
    assert op.window is not None
    op.properties["window"] = IntegerAttr(2 * op.window.value.data, i64)


def forget_the_sink(module: ModuleOp) -> None:
    """The end of an attention without its sink."""
    op = find(module, nn.LseFinishOp)
    new = nn.LseFinishOp(op.m, op.l, op.o, head_dim=op.head_dim.value.data, type=op.result.type)
    Rewriter.replace_op(op, new)


def merge_by_the_first_rank(module: ModuleOp) -> None:
    """Of the parts of an attention the values alone are merged, the sums are those of one rank."""
    op = find(module, nn.LseFinishOp)
    merge = cast(Operation, op.l.owner)
    op.operands[1] = merge.results[0]


def swap_results_of_a_launch(module: ModuleOp) -> None:
    """Query and key come out of their grouped GEMM in the wrong order."""
    launch = next(
        op
        for op in module.walk()
        if isinstance(op, kernel.LaunchOp) and op.kind.data == "gemm" and len(op.yielded) == 3
    )
    terminator = launch.block.last_op
    assert terminator is not None
    first, second = terminator.operands[0], terminator.operands[1]
    terminator.operands[0], terminator.operands[1] = second, first


def launch(module: ModuleOp, name: str) -> kernel.LaunchOp:
    return next(
        op for op in module.walk() if isinstance(op, kernel.LaunchOp) and op.sym_name.data == name
    )


def run_a_launch_too_early(module: ModuleOp) -> None:
    attention = launch(module, "decoder.attention")
    block = attention.parent_block()
    assert block is not None
    first = block.first_op
    assert first is not None
    attention.detach()
    block.insert_op_before(attention, first)


def deal_tiles_out_wrongly(module: ModuleOp) -> None:
    """Tiles go round over two rows of tiles where there is one: half of them are never computed."""
    launch(module, "decoder.down").properties["swizzle"] = integers((2, 1))


def buffer(module: ModuleOp, name: str) -> BufferOp:
    return next(op for op in module.walk() if isinstance(op, BufferOp) and op.sym_name.data == name)


def overlap(one: str, other: str) -> Change:
    """Puts buffer ``one`` where ``other`` is."""

    def change(module: ModuleOp) -> None:
        buffer(module, one).properties["address"] = buffer(module, other).address

    return change


def read_the_wrong_buffer(module: ModuleOp) -> None:
    silu = launch(module, "decoder.silu_mul")
    first, second = silu.read_names
    silu.properties["reads"] = symbols((second, first))


# Instruction streams


def in_kernel(module: ModuleOp, kind: type[OperationT], name: str, index: int = 0) -> OperationT:
    """An instruction of the kernel whose name contains ``name``."""
    found = [
        op
        for body in module.walk()
        if isinstance(body, isa.KernelOp) and name in body.sym_name.data
        for op in body.walk()
        if isinstance(op, kind)
    ]
    return found[index]


RING: Final = "decoder.o_all_reduce"


def drop_a_signal(module: ModuleOp) -> None:
    drop(in_kernel(module, isa.SignalOp, RING))


def forget_another_queue(module: ModuleOp) -> None:
    """A launch does not wait for the all-reduce on the other queue whose result it reads."""
    op = [op for op in module.walk() if isinstance(op, isa.LaunchOp) and "depends" in op.attributes]
    del op[-1].attributes["depends"]


def drop_a_wait(module: ModuleOp) -> None:
    drop(in_kernel(module, isa.WaitOp, RING))


def signal_before_the_put(module: ModuleOp) -> None:
    signal = in_kernel(module, isa.SignalOp, RING)
    loop = signal.prev_op
    if isinstance(loop, isa.DelayOp):  # the transport's cost of a step
        loop = loop.prev_op
    assert isinstance(loop, isa.LoopOp)
    signal.detach()
    block = loop.parent_block()
    assert block is not None
    block.insert_op_before(signal, loop)


def put_into_the_wrong_slot(module: ModuleOp) -> None:
    put = in_kernel(module, isa.PutOp, RING, 1)
    first, *rest = put.starts.data
    put.properties["starts"] = type(put.starts)([shifted(first, -1), *rest])


def put_to_the_wrong_device(module: ModuleOp) -> None:
    put = in_kernel(module, isa.PutOp, RING)
    assert put.peer is not None
    put.properties["peer"] = ExpressionAttr(qa.Const(0))


def stop_before_the_last_step(module: ModuleOp) -> None:
    loop = in_kernel(module, isa.LoopOp, "decoder.down")
    loop.properties["upper"] = shifted(loop.upper, -1)


def load_the_wrong_tile(module: ModuleOp) -> None:
    load = in_kernel(module, isa.LoadOp, "decoder.down", 1)
    first, *rest = load.starts.data
    load.properties["starts"] = type(load.starts)([shifted(first, 1), *rest])


def rotate_by_a_late_position(module: ModuleOp) -> None:
    rope = next(
        op for op in module.walk() if isinstance(op, isa.VectorOp) and op.function.data == "rope"
    )
    values = list(rope.parameters.data)
    values[2] = shifted(values[2], 1)
    rope.properties["parameters"] = type(rope.parameters)(values)


def see_one_key_too_many(module: ModuleOp) -> None:
    """The causal limit of a softmax step is one position late."""
    step = next(
        op
        for op in module.walk()
        if isinstance(op, isa.VectorOp) and op.function.data == "softmax_step"
    )
    values = list(step.parameters.data)
    values[1] = shifted(values[1], 1)
    step.properties["parameters"] = type(step.parameters)(values)


def store_to_another_buffer(module: ModuleOp) -> None:
    store = in_kernel(module, isa.StoreOp, "decoder.rope_append.2")
    store.properties["buffer"] = SymbolRefAttr("decoder.k_cache")


def _stages(module: ModuleOp, name: str, stage: Callable[[Operation], int | None]) -> None:
    loop = in_kernel(module, isa.LoopOp, name)
    for op in loop.body.walk():
        value = stage(op)
        if value is not None:
            op.attributes["stage"] = IntegerAttr(value, i64)


def compute_before_loading(module: ModuleOp) -> None:
    """Loads come one stage after the product that reads them."""
    _stages(
        module,
        "decoder.gate_up.0",
        lambda op: 2 if isinstance(op, isa.LoadOp) else 0 if isinstance(op, isa.MatrixOp) else None,
    )


def too_few_slots(module: ModuleOp) -> None:
    """Loads run ahead of the product, but all steps share one slot."""
    for index in range(3):
        tile = in_kernel(module, isa.AllocOp, "decoder.gate_up.0", index)
        tile.properties["slots"] = IntegerAttr(1, i64)


def share_scratch(module: ModuleOp) -> None:
    """Both operands of a product lie at one offset."""
    tiles = [
        op
        for index in range(8)
        for op in [in_kernel(module, isa.AllocOp, "decoder.gate_up.0", index % 3)]
        if op.space.data == "scratch"
    ]
    offset = tiles[0].offset
    assert offset is not None
    for tile in tiles:
        tile.properties["offset"] = offset


def empty_results(module: ModuleOp) -> None:
    """A layer returns its input."""
    func = next(
        op for op in module.walk() if isinstance(op, FuncOp) and op.sym_name.data == "decoder"
    )
    terminator = func.body.block.last_op
    assert terminator is not None
    terminator.operands[0] = func.body.block.args[0]
    func.properties["function_type"] = FunctionType.from_lists(
        list(func.body.block.arg_types), [func.body.block.args[0].type]
    )


ISA: Final = "verify-schedule"

MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation("verify-model", "changes-a-position", start_rope_late),
    Mutation("verify-model", "returns-the-input", empty_results),
    Mutation("assign-tensor-parallel", "swaps-q-and-k", swap_query_and_key_weights),
    Mutation("propagate-shardings", "loses-a-reshard", lose_a_reshard, message="replicas"),
    Mutation("propagate-shardings", "adds-a-partial", take_a_partial_for_complete),
    Mutation("propagate-shardings", "loses-the-residual", lose_the_residual),
    Mutation("shard-attention-sequence", "wrong-owner", send_a_token_to_another_owner, case=SPLIT),
    Mutation("shard-attention-sequence", "wide-window", see_a_wider_window, case=SPLIT),
    Mutation("shard-attention-sequence", "loses-the-sink", forget_the_sink, case=SPLIT),
    Mutation("shard-attention-sequence", "loses-the-sums", merge_by_the_first_rank, case=SPLIT),
    Mutation("localize", "reduces-one-axis", reduce_over_one_axis),
    Mutation("localize", "loses-an-all-reduce", lose_an_all_reduce, message="replicas"),
    Mutation("localize", "loses-the-embedding-sum", gather_instead_of_embedding_sum),
    Mutation("select-collective-algorithm", "maximum", reduce_by_maximum),
    Mutation("form-kernels", "swaps-results", swap_results_of_a_launch),
    Mutation("form-kernels", "loses-the-residual", lose_the_residual),
    Mutation("form-kernels", "loses-the-mask", forget_the_mask, case=PROMPT),
    Mutation("assign-queues", "runs-too-early", run_a_launch_too_early, message="before it is"),
    Mutation("tile-kernels", "loses-the-scale", forget_the_scale),
    Mutation("map-workgroups", "wrong-order", deal_tiles_out_wrongly, case=DEEP, until=ISA),
    Mutation(
        "plan-memory",
        "overlaps-activations",
        overlap("decoder.attention.out", "decoder.rope_append.out0"),
        message="overlap",
    ),
    Mutation(
        "plan-memory",
        "overlaps-the-residual",
        overlap("decoder.mlp_norm.out", "decoder.add.out"),
        message="overlap",
    ),
    Mutation(
        "plan-memory",
        "overlaps-a-weight",
        overlap("decoder.result", "decoder.up"),
        message="decoder.up",
    ),
    Mutation("plan-memory", "overlaps-caches", overlap("decoder.k_cache", "decoder.v_cache")),
    Mutation("plan-memory", "reads-another-buffer", read_the_wrong_buffer),
    Mutation("plan-memory", "appends-early", append_one_position_early),
    Mutation("lower-to-isa", "drops-a-signal", drop_a_signal, message="deadlock"),
    Mutation("lower-to-isa", "forgets-a-queue", forget_another_queue, case=PARALLEL),
    Mutation("lower-to-isa", "drops-a-wait", drop_a_wait),
    Mutation("lower-to-isa", "signals-before-the-put", signal_before_the_put),
    Mutation("lower-to-isa", "wrong-staging-slot", put_into_the_wrong_slot),
    Mutation("lower-to-isa", "wrong-peer", put_to_the_wrong_device),
    Mutation("lower-to-isa", "wrong-tile-edge", stop_before_the_last_step, case=DEEP),
    Mutation("lower-to-isa", "wrong-tile", load_the_wrong_tile, case=DEEP),
    Mutation("lower-to-isa", "wrong-rope-start", rotate_by_a_late_position),
    Mutation("lower-to-isa", "wrong-mask", see_one_key_too_many, case=PROMPT),
    Mutation("lower-to-isa", "stores-elsewhere", store_to_another_buffer),
    Mutation("pipeline-loops", "loads-late", compute_before_loading, case=DEEP),
    Mutation("pipeline-loops", "too-few-slots", too_few_slots, case=DEEP),
    Mutation("plan-scratch", "shares-scratch", share_scratch, case=DEEP),
    Mutation("verify-schedule", "drops-a-signal", drop_a_signal, message="deadlock"),
)
