"""What a symbol names in a module."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Operation
from xdsl.traits import SymbolOpInterface


def named(op: Operation, name: str | SymbolRefAttr) -> Operation | None:
    """The operation of the module around ``op`` that has the symbol ``name``; ``None`` where there
    is none. Symbols of starc are flat. (``SymbolTable.lookup_symbol`` of xDSL asks every operation
    for its traits, which takes ten times as long.)"""
    module: Operation | None = op
    while module is not None and not isinstance(module, ModuleOp):
        module = module.parent_op()
    if module is None:
        raise ValueError(f"'{op.name}' stands in no module")
    text = name if isinstance(name, str) else name.root_reference.data
    for found in module.body.block.ops:
        symbol = found.properties.get("sym_name")
        if isinstance(symbol, StringAttr) and symbol.data == text:
            return found if found.has_trait(SymbolOpInterface) else None
    return None
