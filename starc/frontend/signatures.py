"""The operations of the language and what they take: one table for checking calls and for help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starc.diagnostics import suggestion
from starc.dialects import nn
from starc.frontend.evaluation import RESERVED_WORDS
from starc.frontend.problems import Problems
from starc.frontend.syntax import Argument, Call, Expression, Identifier


@dataclass(frozen=True)
class Signature:
    """``parameters`` in order, all needed; ``flags`` (bare words) and ``keywords``, all optional.
    ``meaning`` is one line for the reference. An ``elementwise`` operation takes tensors of one
    shape, and needs no more to be built."""

    name: str
    parameters: tuple[str, ...]
    meaning: str
    flags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    elementwise: type[nn.ElementwiseOp] | None = None

    def __str__(self) -> str:
        optional = [*self.flags, *(f"{keyword} =" for keyword in self.keywords)]
        brackets = f" [, {', '.join(optional)}]" if optional else ""
        return f"{self.name}({', '.join(self.parameters)}{brackets})"


SIGNATURES: Final[dict[str, Signature]] = {
    signature.name: signature
    for signature in (
        Signature(
            "linear",
            ("x", "width"),
            "x times a weight [features of x, width]",
            keywords=("name",),
        ),
        Signature(
            "rms_norm",
            ("x",),
            "rows over their root mean square, times a weight [features of x]",
            keywords=("name", "eps"),
        ),
        Signature(
            "rope",
            ("x",),
            "rotary position embedding of every head",
            keywords=("theta", "head_dim"),
        ),
        Signature(
            "attention",
            ("q", "k", "v"),
            "appends k and v to the KV cache; softmax attention of q over the cache",
            flags=("causal", "sink"),
            keywords=("window", "keep", "heads", "kv_heads", "head_dim", "scale", "name"),
        ),
        Signature("silu", ("x",), "x * sigmoid(x)", elementwise=nn.SiluOp),
        Signature(
            "gelu",
            ("x",),
            "the Gaussian error linear unit, tanh form",
            elementwise=nn.GeluOp,
        ),
    )
}


@dataclass(frozen=True)
class BoundCall:
    """The arguments of a call by parameter or keyword, and the flags that were given."""

    call: Call
    signature: Signature
    arguments: dict[str, Expression]
    flags: frozenset[str]


def bind(call: Call, problems: Problems) -> BoundCall | None:
    """The arguments by name. None, with every mistake of the call reported, if it is wrong."""
    signature = SIGNATURES.get(call.operation)
    if signature is None:
        problems.unknown_name("operation", call.operation, list(SIGNATURES), call.location)
        return None
    binding = _Binding(call, signature, problems)
    for argument in call.arguments:
        binding.add(argument)
    return binding.finish()


class _Binding:
    def __init__(self, call: Call, signature: Signature, problems: Problems) -> None:
        self.call = call
        self.signature = signature
        self.problems = problems
        self.arguments: dict[str, Expression] = {}
        self.flags: set[str] = set()
        self.positional = 0
        self.keyword_seen = False
        self.wrong = False

    def report(self, argument: Argument, message: str, hint: str | None = None) -> None:
        location = argument.value.location
        if argument.keyword is not None:
            location = argument.keyword.location
        self.problems.report(message, location, hint=hint)
        self.wrong = True

    def add(self, argument: Argument) -> None:
        value = argument.value
        if argument.keyword is not None:
            self.keyword_seen = True
            self.add_keyword(argument, argument.keyword.text)
        elif isinstance(value, Identifier) and value.text in RESERVED_WORDS:
            self.add_flag(argument, value.text)
        else:
            self.add_positional(argument)

    def add_keyword(self, argument: Argument, keyword: str) -> None:
        legal = (*self.signature.parameters, *self.signature.keywords)
        if keyword in self.signature.flags:
            message = f"'{keyword}' is a flag of {self.call.operation}: it takes no value"
            self.report(argument, message, f"write it alone: {self.call.operation}(..., {keyword})")
        elif keyword not in legal:
            optional = ", ".join(self.signature.keywords) or "none"
            hint = suggestion(keyword, legal) or f"it takes {self.signature}"
            self.report(
                argument,
                f"{self.call.operation} has no '{keyword}'; its keywords are: {optional}",
                hint,
            )
        elif keyword in self.arguments:
            self.report(argument, f"'{keyword}' is given twice")
        else:
            self.arguments[keyword] = argument.value

    def add_flag(self, argument: Argument, flag: str) -> None:
        if flag not in self.signature.flags:
            self.report(argument, self.no_flag(flag))
        self.flags.add(flag)

    def no_flag(self, flag: str) -> str:
        legal = ", ".join(self.signature.flags)
        has = f"its flags are: {legal}" if legal else "it has none"
        return f"{self.call.operation} has no flag '{flag}'; {has}"

    def add_positional(self, argument: Argument) -> None:
        parameters = self.signature.parameters
        if self.keyword_seen:
            self.report(argument, "an argument without a name stands after one with a name")
        elif self.positional >= len(parameters):
            message = f"{self.call.operation} takes {_count(len(parameters))}"
            hint = None
            if isinstance(argument.value, Identifier) and self.signature.flags:
                # What stands behind the arguments is a flag.
                flag = argument.value.text
                message = self.no_flag(flag)
                hint = suggestion(flag, self.signature.flags)
            self.report(argument, message, hint or f"it takes {self.signature}")
        else:
            self.arguments[parameters[self.positional]] = argument.value
        self.positional += 1

    def finish(self) -> BoundCall | None:
        missing = [name for name in self.signature.parameters if name not in self.arguments]
        if missing and not self.wrong:
            names = " and ".join(f"'{name}'" for name in missing)
            self.problems.report(
                f"{self.call.operation} lacks {names}",
                self.call.location,
                hint=f"it takes {self.signature}",
            )
            self.wrong = True
        if self.wrong:
            return None
        return BoundCall(self.call, self.signature, self.arguments, frozenset(self.flags))


def _count(arguments: int) -> str:
    return "one argument" if arguments == 1 else f"{arguments} arguments"
