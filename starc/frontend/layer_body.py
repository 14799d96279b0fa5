"""What layers are made of: operations in a block, and the weights and caches that they use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Final, cast

from xdsl.dialects.builtin import (
    Builtin,
    FileLineColLoc,
    IntAttr,
    StringAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from starc.core.element_types import FORMATS, ElementFormat
from starc.diagnostics import Location
from starc.dialects import nn
from starc.frontend.model_parameters import ModelParameters
from starc.frontend.problems import Problems
from starc.frontend.syntax import Identifier
from starc.frontend.workload import Workload
from starc.quantities import LARGEST

_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_MODEL_TYPES: Final = {row.name for row in FORMATS if row.spellings}
_IR_TYPES: Final[Mapping[str, Attribute]] = {
    type.name: type() for type in Builtin.attributes if type.name in _MODEL_TYPES
}


@dataclass(frozen=True)
class Tensor:
    """A value of a layer."""

    value: SSAValue
    shape: tuple[int, ...]

    @property
    def type(self) -> nn.FloatTensor:
        return cast(nn.FloatTensor, self.value.type)


@dataclass
class BuiltLayer:
    """A function and the symbols that it uses."""

    name: str
    function: FuncOp
    parameters: list[nn.ParameterOp]
    states: list[nn.StateOp]
    # Whether its input and its output are both the hidden state, as a layer of a stack has them.
    keeps_hidden_state: bool


def ir_location(location: Location) -> FileLineColLoc:
    """A location as an operation carries it."""
    return FileLineColLoc(
        StringAttr(location.file), IntAttr(location.line), IntAttr(location.column)
    )


@dataclass
class LayerBody:
    """A layer on its way: its block, its parameters and states, and the names that they took,
    which are unique in the layer."""

    layer: str
    model: ModelParameters
    workload: Workload
    problems: Problems
    block: Block = field(default_factory=Block)
    parameters: list[nn.ParameterOp] = field(default_factory=list[nn.ParameterOp])
    states: list[nn.StateOp] = field(default_factory=list[nn.StateOp])
    names: dict[str, Location] = field(default_factory=dict[str, Location])
    caches: set[str] = field(default_factory=set[str])

    def tensor_type(
        self, shape: tuple[int, ...], element: ElementFormat, location: Location
    ) -> nn.FloatTensor | None:
        """The type, unless its bytes do not fit in 63 bits, which is reported."""
        if element.bytes * prod(shape) > LARGEST:
            self.problems.report(
                f"a tensor {list(shape)} of {element.name} has more bytes than fit in 63 bits",
                location,
            )
            return None
        return cast(nn.FloatTensor, TensorType(_IR_TYPES[element.name], shape))

    def emit(self, op: Operation, location: Location, hint: str | None = None) -> Tensor:
        """Adds an operation with one result."""
        op.location = ir_location(location)
        self.block.add_op(op)
        result = op.results[0]
        if hint is not None:
            result.name_hint = hint
        return Tensor(result, cast(nn.FloatTensor, result.type).get_shape())

    def claim(self, name: Identifier, what: str) -> str | None:
        """The symbol of a weight or cache; None, reported, if the name is taken or none."""
        text, location = name.text, name.location
        if _SYMBOL.fullmatch(text) is None:
            self.problems.report(
                f"'{text}' cannot be the name of a {what}: it has to be at most 64 letters, digits "
                "and '_'",
                location,
            )
            return None
        if text in self.names:
            is_cache = (what == "cache") + (text in self.caches)
            both = ("two weights", "a weight and a cache", "two caches")[is_cache]
            self.problems.report(
                f"the layer '{self.layer}' has {both} named '{text}'; the first is in line "
                f"{self.names[text].line}",
                location,
                hint='give this one a name of its own: name = "..."',
            )
            return None
        self.names[text] = location
        if what == "cache":
            self.caches.add(text)
        return f"{self.layer}.{text}"

    def parameter(
        self, name: Identifier, shape: tuple[int, ...], location: Location
    ) -> Tensor | None:
        """Declares a weight of the model's element type and reads it."""
        type = self.tensor_type(shape, self.model.dtype, location)
        symbol = self.claim(name, "weight")
        if symbol is None or type is None:
            return None
        declaration = nn.ParameterOp(symbol, type)
        declaration.location = ir_location(location)
        self.parameters.append(declaration)
        return self.emit(nn.ReadOp(symbol, type), location, f"{name.text}_weight")

    def append(
        self, name: Identifier, new: Tensor, kv_heads: int, head_dim: int, location: Location
    ) -> Tensor | None:
        """Declares a cache and appends the new keys or values to it."""
        shape = (self.workload.batch, kv_heads, self.workload.context, head_dim)
        type = self.tensor_type(shape, self.model.kv_dtype, location)
        symbol = self.claim(name, "cache")
        if symbol is None or type is None:
            return None
        declaration = nn.StateOp(symbol, type)
        declaration.location = ir_location(location)
        self.states.append(declaration)
        return self.emit(
            nn.AppendOp(symbol, new.value, self.workload.start, type), location, name.text
        )

    def linear(self, x: Tensor, width: int, name: Identifier, location: Location) -> Tensor | None:
        """x times a new weight."""
        type = self.tensor_type((*x.shape[:-1], width), self.model.dtype, location)
        weight = self.parameter(name, (x.shape[-1], width), location)
        if weight is None or type is None:
            return None
        return self.emit(nn.LinearOp(x.value, weight.value, type), location, name.text)

    def rms_norm(
        self, x: Tensor, eps: float, name: Identifier, location: Location
    ) -> Tensor | None:
        """x normalised, times a new weight."""
        weight = self.parameter(name, (x.shape[-1],), location)
        if weight is None:
            return None
        return self.emit(nn.RmsNormOp(x.value, weight.value, eps, x.type), location, name.text)

    def finish(self, result: Tensor, location: Location, return_location: Location) -> FuncOp:
        """The function of the layer."""
        end = ReturnOp(result.value)
        end.location = ir_location(return_location)
        self.block.add_op(end)
        inputs = [argument.type for argument in self.block.args]
        function = FuncOp(self.layer, (inputs, [result.value.type]), Region(self.block))
        function.location = ir_location(location)
        return function
