"""The facts of a model that its module holds as attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import (
    IntegerAttr,
    ModuleOp,
    StringAttr,
)
from xdsl.ir import Attribute


@dataclass(frozen=True)
class ModelFacts:
    """What a module's ``nn.*`` attributes say: the model's name, the phase (``decode`` or
    ``prefill``), sequences in the batch, new tokens a sequence (``query``) and tokens a sequence
    attends to, the new ones included (``context``)."""

    model: str
    phase: str
    batch: int
    query: int
    context: int

    @property
    def start(self) -> int:
        """Position of the first new token."""
        return self.context - self.query

    @classmethod
    def of(cls, module: ModuleOp) -> ModelFacts:
        """Reads the attributes. Raises ``ValueError`` where one is missing."""

        def attribute(name: str) -> Attribute:
            found = module.attributes.get(f"nn.{name}")
            if found is None:
                raise ValueError(f"the module has no attribute nn.{name}")
            return found

        def text(name: str) -> str:
            return cast(StringAttr, attribute(name)).data

        def number(name: str) -> int:
            return cast(IntegerAttr, attribute(name)).value.data

        return cls(
            text("model"), text("phase"), number("batch"), number("query"), number("context")
        )

    def write_to(self, module: ModuleOp) -> None:
        """Sets the attributes."""
        module.attributes["nn.model"] = StringAttr(self.model)
        module.attributes["nn.phase"] = StringAttr(self.phase)
        for name in ("batch", "query", "context"):
            module.attributes[f"nn.{name}"] = IntegerAttr(getattr(self, name), 64)
