"""Small modules as text for the tests of the interpreters."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from starc.universe import DIALECT_NAMES, load_dialect


def parse(text: str, *, verify: bool = True) -> ModuleOp:
    """The module of a text; ``verify=False`` for modules that are wrong on purpose."""
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    for name in DIALECT_NAMES:
        context.load_dialect(load_dialect(name))
    module = Parser(context, text).parse_module()
    if verify:
        module.verify()
    return module


MESH = 'sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]'


def tensor(shape: str, dims: str, partial: str = "", element: str = "bf16", whole: str = "") -> str:
    """A tensor type on the mesh of these tests: ``tensor("2x1x8", '{}, {}, {"xcd"}')``."""
    ends = (f", partial = {partial}" if partial else "") + (f", global = {whole}" if whole else "")
    return f"tensor<{shape}x{element}, #sharding.of<@node, [{dims}]{ends}>>"


def two_layer_mlp(after_down: str = 'sum{"gpu", "xcd"}', silu_input: str = "") -> str:
    """A column- and a row-parallel linear with a reshard behind them.

    ``after_down`` is the partial that the second result declares; ``silu_input`` one that the
    first declares although it is complete.
    """
    x = tensor("2x1x8", "{}, {}, {}")
    up, down = tensor("8x16", '{}, {"gpu", "xcd"}'), tensor("16x8", '{"gpu", "xcd"}, {}')
    hidden = tensor("2x1x16", '{}, {}, {"gpu", "xcd"}', silu_input)
    partial = tensor("2x1x8", "{}, {}, {}", after_down)
    return f"""builtin.module {{
  {MESH}
  nn.parameter @mlp.up : {up}
  nn.parameter @mlp.down : {down}
  func.func @mlp(%x : {x}) -> {x} {{
    %u = nn.read @mlp.up : {up}
    %d = nn.read @mlp.down : {down}
    %a = nn.linear %x, %u : {x}, {up} -> {hidden}
    %s = nn.silu %a : {hidden} -> {hidden}
    %p = nn.linear %s, %d : {hidden}, {down} -> {partial}
    %y = sharding.reshard %p : {partial} -> {x}
    func.return %y : {x}
  }}
}}"""


TWO_LAYER_MLP_WHOLE = """builtin.module {
  nn.parameter @mlp.up : tensor<8x16xbf16>
  nn.parameter @mlp.down : tensor<16x8xbf16>
  func.func @mlp(%x : tensor<2x1x8xbf16>) -> tensor<2x1x8xbf16> {
    %u = nn.read @mlp.up : tensor<8x16xbf16>
    %d = nn.read @mlp.down : tensor<16x8xbf16>
    %a = nn.linear %x, %u : tensor<2x1x8xbf16>, tensor<8x16xbf16> -> tensor<2x1x16xbf16>
    %s = nn.silu %a : tensor<2x1x16xbf16> -> tensor<2x1x16xbf16>
    %y = nn.linear %s, %d : tensor<2x1x16xbf16>, tensor<16x8xbf16> -> tensor<2x1x8xbf16>
    func.return %y : tensor<2x1x8xbf16>
  }
}"""
