"""What is checked after every pass beside the operations' own verifiers.

xDSL checks neither that a value is defined before it is used nor that an operation has a location.
Both are checked here in one walk, in time linear in the size of the module.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.irdl.dominance import DominanceInfo
from xdsl.utils.exceptions import VerifyException

from starc.dialects.invalid_ir import InvalidIR


def verify(module: ModuleOp, *, locations: bool = True) -> None:
    """Checks every operation's verifier, dominance, the sharding rules where values have encodings
    and, with ``locations``, that every operation has a location. Raises ``InvalidIR`` for the first
    violation."""
    verify_operations(module)
    verify_dominance(module)
    verify_shardings(module)
    if locations:
        verify_locations(module)


def verify_operations(module: ModuleOp) -> None:
    """Runs every operation's own verifier, and names the operation that fails."""
    try:
        module.verify()
    except VerifyException as error:
        raise InvalidIR(str(error), _failing_operation(module)) from error


def _failing_operation(module: ModuleOp) -> Operation | None:
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except InvalidIR as error:
            return error.op or op
        except VerifyException:
            return op
    return None


def verify_shardings(module: ModuleOp) -> None:
    """Checks that every operation obeys its sharding rule."""
    from starc.analysis.sharding_rules import check

    found = check(module)
    if found:
        raise InvalidIR("\n".join(str(item) for item in found), diagnostics=found)


def verify_locations(module: ModuleOp) -> None:
    """Checks that every operation inside the module says where it came from."""
    op = operation_without_location(module)
    if op is not None:
        raise InvalidIR(f"'{op.name}' has no location", op)


def operation_without_location(module: ModuleOp) -> Operation | None:
    """The first operation inside the module whose location is unknown."""
    for op in module.walk():
        if op is not module and isinstance(op.location, UnknownLoc):
            return op
    return None


def verify_dominance(module: ModuleOp) -> None:
    """Checks that every operand is defined before its use: earlier in the block, as an argument of
    the block, in a block that dominates it, or outside, before the operation that encloses it."""
    _check_operation(module, set())


def _check_operation(op: Operation, visible: set[SSAValue]) -> None:
    for index, operand in enumerate(op.operands):
        if operand not in visible:
            name = f"%{operand.name_hint}" if operand.name_hint else f"operand {index}"
            raise InvalidIR(f"'{op.name}' uses {name} before it is defined", op)
    for region in op.regions:
        if len(region.blocks) == 1:
            _check_block(region.block, visible)
        elif region.blocks:
            _check_graph(region, visible)
    visible.update(op.results)


def _check_block(block: Block, visible: set[SSAValue]) -> None:
    """Checks a block and takes its values out of ``visible`` again."""
    _enter_block(block, visible)
    _leave_block(block, visible)


def _enter_block(block: Block, visible: set[SSAValue]) -> None:
    visible.update(block.args)
    for op in block.ops:
        _check_operation(op, visible)


def _leave_block(block: Block, visible: set[SSAValue]) -> None:
    visible.difference_update(block.args)
    for op in block.ops:
        visible.difference_update(op.results)


def _check_graph(region: Region, visible: set[SSAValue]) -> None:
    """Checks a region of several blocks: a block sees the values of those that dominate it."""
    dominance = DominanceInfo(region)
    for block in region.blocks:
        dominators = [
            other for other in region.blocks if dominance.strictly_dominates(other, block)
        ]
        for other in dominators:
            visible.update(other.args)
            for op in other.ops:
                visible.update(op.results)
        _check_block(block, visible)
        for other in dominators:
            _leave_block(other, visible)
