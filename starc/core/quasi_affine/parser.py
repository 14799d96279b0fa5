"""Expressions from their text.

>>> parse("min(wg floordiv 4, 7) * 2").evaluate({"wg": 9})
4
"""

from __future__ import annotations

import re

from starc.core.quasi_affine.expressions import (
    Add,
    Const,
    Expression,
    FloorDiv,
    Max,
    Min,
    Mod,
    Mul,
    Table,
    Var,
)

_TOKEN = re.compile(r"\s*(\d+|%?[A-Za-z_][\w.]*|[-+*(),<>\[\]])")


class _Parser:
    """Recursive descent over ``sum := product (('+'|'-') product)*`` and so on."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[str] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise ValueError(
                    f"unexpected character {stripped[position:].strip()[0]!r} in {text!r}"
                )
            self.tokens.append(match.group(1))
            position = match.end()
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def next(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise ValueError(
                f"expected {expected or 'an expression'}, got {token or 'the end'} in {self.text!r}"
            )
        self.position += 1
        return token

    def sum(self) -> Expression:
        result = self.product()
        while self.peek() in ("+", "-"):
            sign = self.next()
            right = self.product()
            if sign == "-":
                right = (
                    Const(-right.value)
                    if isinstance(right, Const)
                    else (
                        Mul(right.operand, -right.factor)
                        if isinstance(right, Mul)
                        else Mul(right, -1)
                    )
                )
            result = Add(result, right)
        return result

    def integer(self) -> int:
        sign = -1 if self.peek() == "-" else 1
        if sign < 0:
            self.next()
        token = self.next()
        if not token.isdigit():
            raise ValueError(f"expected an integer, got {token} in {self.text!r}")
        return sign * int(token)

    def product(self) -> Expression:
        result = self.atom()
        while self.peek() in ("*", "floordiv", "mod"):
            operator = self.next()
            factor = self.integer()
            if operator == "*":
                result = Mul(result, factor)
            else:
                result = (FloorDiv if operator == "floordiv" else Mod)(result, factor)
        return result

    def pair(self) -> tuple[Expression, Expression]:
        self.next("(")
        left = self.sum()
        self.next(",")
        right = self.sum()
        self.next(")")
        return left, right

    def atom(self) -> Expression:
        token = self.peek()
        if token == "-":
            return Const(self.integer())
        self.next()
        if token.isdigit():
            return Const(int(token))
        if token == "(":
            result = self.sum()
            self.next(")")
            return result
        if token in ("min", "max") and self.peek() == "(":
            return (Min if token == "min" else Max)(*self.pair())
        if token == "table" and self.peek() == "<":
            self.next("<")
            values = [self.integer()]
            while self.peek() == ",":
                self.next()
                values.append(self.integer())
            self.next(">")
            self.next("[")
            index = self.sum()
            self.next("]")
            return Table(tuple(values), index)
        if re.fullmatch(r"%?[A-Za-z_][\w.]*", token):
            return Var(token)
        raise ValueError(f"unexpected {token} in {self.text!r}")


def parse(text: str) -> Expression:
    """Parses what ``str`` prints, without simplification, so that text round-trips.

    Raises ``ValueError`` with the offending token.
    """
    parser = _Parser(text)
    result = parser.sum()
    if parser.peek():
        raise ValueError(f"unexpected {parser.peek()} in {text!r}")
    return result
