"""What a verifier raises when the fault is of one operation among several, or of several."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from starc.diagnostics import Diagnostic


class InvalidIR(VerifyException):
    """The module breaks an invariant of the IR; ``op`` is where, if one operation is to blame, and
    ``diagnostics`` are the violations, if there can be several."""

    def __init__(
        self,
        message: str,
        op: Operation | None = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__(message)
        self.op = op
        self.diagnostics = tuple(diagnostics)
