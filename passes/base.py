"""What every pass is: a frozen dataclass with a contract, options as fields, and remarks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnknownLoc
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from starc.diagnostics import Diagnostic, Location, suggestion
from starc.dialects.locations import location_of
from starc.dialects.target import target_of
from starc.targets.target import Target

OperationT = TypeVar("OperationT", bound=Operation)
OptionValues = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Remark:
    """What a pass did, or declined to do and why, with the numbers that decided it.

    ``id`` is stable kebab-case (``starc explain ID`` finds it); ``numbers`` are plain scalars in
    the units that their names end with (``_bytes``, ``_us``, ``_flops``). ``launch`` is the name of
    the launch whose numbers they are, if they are those of one.
    """

    id: str
    message: str
    location: Location | None = None
    numbers: Mapping[str, int | float | str] = field(default_factory=dict[str, int | float | str])
    declined: bool = False
    launch: str | None = None


@dataclass
class RemarkSink:
    """Collects the remarks of a pipeline, in order."""

    remarks: list[tuple[str, Remark]] = field(default_factory=list[tuple[str, Remark]])
    pass_name: str = ""

    def remark(
        self,
        id: str,
        message: str,
        op: Operation | None = None,
        *,
        declined: bool = False,
        **numbers: int | float | str,
    ) -> None:
        """Records a remark of the running pass at the location of ``op``, once: what is true of
        several loops of a kernel is not said of each."""
        location = location_of(op) if op is not None else None
        entry = (self.pass_name, Remark(id, message, location, numbers, declined))
        if location is None or entry not in self.remarks:
            self.remarks.append(entry)


@dataclass(frozen=True)
class StarcPass(ModulePass):
    """A pass of the pipeline. The docstring of a subclass states its contract: what holds after
    it, and a before/after example as two ``mlir`` blocks that a test runs and compares.

    ``VALUES`` has the legal values of every option that is a name or several, by field: listings,
    pages and errors read them there.

    ``only_checks`` says that the pass never changes the module: nothing is verified after it, and
    what it has found holds until a pass that does."""

    VALUES: ClassVar[OptionValues] = {}
    only_checks: ClassVar[bool] = False

    def wrong_values(self, where: str = "", **legal: Sequence[str]) -> list[Diagnostic]:
        """What is wrong with options that are names: every value that is not in ``VALUES``, or
        not in ``legal`` where a machine, ``where``, has its own."""
        found: list[Diagnostic] = []
        for name, values in {**self.VALUES, **legal}.items():
            given: object = getattr(self, name)
            several = cast("tuple[object, ...]", given if isinstance(given, tuple) else (given,))
            for value in several:
                if value is not None and value not in values:
                    owner = f" on {where}" if where and name in legal else ""
                    text = f"option '{name.replace('_', '-')}' has no value '{value}'{owner}"
                    found.append(
                        Diagnostic(
                            f"{self.name}: {text}, one of {', '.join(values)}",
                            hint=suggestion(str(value), values),
                        )
                    )
        return found

    @abstractmethod
    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        """Rewrites ``module`` in place. Raises ``InputError`` for what the user must change."""

    def run_on_level(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        """``run``, on a module at the level that the pass works on. Raises ``InputError`` for any
        other, with the pass that has to run first."""
        from starc.passes.levels import require_level

        require_level(module, self.name)
        self.run(module, target, sink)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Runs the pass where there is no driver, as in ``xdsl-opt``: the target is the module's
        own ``dlti.target_system_spec`` and remarks are dropped."""
        self.run_on_level(op, target_of(op), RemarkSink(pass_name=self.name))


def with_location(new: OperationT, old: Operation) -> OperationT:
    """Gives ``new`` and the operations inside it that have no location the location of ``old``
    (xDSL's rewriter does not copy locations), and returns ``new``."""
    for op in new.walk():
        if isinstance(op.location, UnknownLoc):
            op.location = old.location
    return new
