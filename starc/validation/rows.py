"""Measured cases, and the rows of a validation: a case with what was simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from starc.validation.context import Context

Scalar = int | float | str

Role = Literal["anchor", "fitted", "test", "input", "shown"]
"""``anchor``: the row fixes a constant by itself; ``fitted``: it is one of the rows that constants
were fitted on; ``test``: nobody fitted it; ``input``: the model takes the number as it is;
``shown``: it is printed, and not scored."""

ROLES: Final[tuple[Role, ...]] = ("anchor", "fitted", "test", "input", "shown")
FITTING: Final[tuple[Role, ...]] = ("anchor", "fitted")


@dataclass(frozen=True)
class Case:
    """One measured row. ``parameters`` are the file's other columns, in its order."""

    file: str
    kind: str  # the kernel class, in which rows are scored together
    parameters: Mapping[str, Scalar]
    measured: float
    unit: str = "us"
    line: int = 0

    def integer(self, name: str) -> int:
        """A parameter that is a whole number."""
        return int(self.parameters[name])

    def text(self, name: str) -> str:
        """A parameter that is a name."""
        return str(self.parameters[name])


@dataclass(frozen=True)
class Work:
    """What a roofline knows of a case.

    ``workgroups`` stream ``bytes`` side by side; ``stages`` are kernels behind the first one, each
    of which costs a second offset. Zero FLOP: the class has no matrix rate.
    """

    bytes: float
    flops: float = 0.0
    workgroups: int | None = None
    stages: int = 0


@dataclass(frozen=True)
class Row:
    """A case with what was simulated. ``margin`` is the largest error allowed, as a fraction, where
    one is stated; ``baselines`` are the times of the refit formulas, by name."""

    file: str
    kind: str
    group: str
    parameters: Mapping[str, Scalar]
    measured: float
    simulated: float
    unit: str
    role: Role
    margin: float | None
    baselines: Mapping[str, float]

    @property
    def fitted(self) -> bool:
        """Whether a constant of the simulator was fitted on the row."""
        return self.role in FITTING

    @property
    def error(self) -> float:
        """Simulated over measured, less one."""
        return self.simulated / self.measured - 1.0

    def baseline_error(self, name: str) -> float:
        """The same of a baseline."""
        return self.baselines[name] / self.measured - 1.0


class CaseModule(Protocol):
    """What a module of ``starc.validation.cases`` offers.

    ``read`` and ``simulate`` and ``role`` are required. The others may be left out; ``optional``
    in the registry says what holds then.
    """

    def read(self, path: Path) -> Sequence[Case]:
        """The cases of a file. Raises ``InputError`` with all that is wrong with it."""
        ...

    def simulate(self, case: Case, context: Context) -> float:
        """The simulated value, in the unit of the measured one."""
        ...

    def role(self, case: Case) -> Role:
        """By a rule on the parameters: never on the measured value."""
        ...


RoleRule = Callable[[Case], Role]
