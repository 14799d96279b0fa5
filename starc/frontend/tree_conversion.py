"""Lark's tree to the syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lark import Token, Tree

from starc.diagnostics import Location
from starc.frontend.syntax import (
    Argument,
    Assignment,
    Call,
    Chain,
    Entry,
    Expression,
    Identifier,
    Layer,
    Model,
    Negation,
    Number,
    Phase,
    Repeat,
    Return,
    SourceFile,
    Stack,
    Step,
    String,
)

_Child = Token | Tree[Token]


def convert_file(file: str, tree: Tree[Token]) -> SourceFile:
    """The syntax tree of a whole file."""
    convert = _Conversion(file)
    blocks = {name: list(_named(tree, name)) for name in ("model", "layer", "stack", "phase")}
    return SourceFile(
        file,
        tuple(convert.model(block) for block in blocks["model"]),
        tuple(convert.layer(block) for block in blocks["layer"]),
        tuple(convert.stack(block) for block in blocks["stack"]),
        tuple(convert.phase(block) for block in blocks["phase"]),
    )


def convert_expression(file: str, tree: Tree[Token]) -> Expression:
    """The syntax tree of one expression."""
    return _Conversion(file).expression(tree)


def _tokens(children: Iterable[_Child], type: str) -> Iterator[Token]:
    return (child for child in children if isinstance(child, Token) and child.type == type)


def _trees(children: Iterable[_Child]) -> Iterator[Tree[Token]]:
    return (child for child in children if isinstance(child, Tree))


def _named(tree: Tree[Token], data: str) -> Iterator[Tree[Token]]:
    return (child for child in _trees(tree.children) if child.data == data)


class _Conversion:
    def __init__(self, file: str) -> None:
        self.file = file

    def location(self, token: Token) -> Location:
        return Location(self.file, token.line or 1, token.column or 1)

    def identifier(self, token: Token) -> Identifier:
        return Identifier(str(token), self.location(token))

    def string(self, token: Token) -> String:
        return String(str(token)[1:-1], self.location(token))

    def model(self, tree: Tree[Token]) -> Model:
        (keyword,) = _tokens(tree.children, "MODEL")
        name = next((self.string(token) for token in _tokens(tree.children, "STRING")), None)
        return Model(name, self.entries(tree), self.location(keyword))

    def phase(self, tree: Tree[Token]) -> Phase:
        (name,) = _tokens(tree.children, "NAME")
        return Phase(self.identifier(name), self.entries(tree))

    def entries(self, tree: Tree[Token]) -> tuple[Entry, ...]:
        return tuple(self.entry(child) for child in _named(tree, "entry"))

    def entry(self, tree: Tree[Token]) -> Entry:
        (name,) = _tokens(tree.children, "NAME")
        (value,) = _trees(tree.children)
        return Entry(self.identifier(name), self.expression(value))

    def stack(self, tree: Tree[Token]) -> Stack:
        (keyword,) = _tokens(tree.children, "STACK")
        entries = tuple(self.repeat(child) for child in _named(tree, "stack_entry"))
        return Stack(entries, self.location(keyword))

    def repeat(self, tree: Tree[Token]) -> Repeat:
        layers = tuple(self.identifier(token) for token in _tokens(tree.children, "NAME"))
        count = next((self.expression(child) for child in _trees(tree.children)), None)
        return Repeat(layers, count)

    def layer(self, tree: Tree[Token]) -> Layer:
        (name,) = _tokens(tree.children, "NAME")
        inputs, *statements = _trees(tree.children)
        return Layer(
            self.identifier(name),
            tuple(self.identifier(token) for token in _tokens(inputs.children, "NAME")),
            tuple(self.statement(child) for child in statements),
        )

    def statement(self, tree: Tree[Token]) -> Assignment | Return:
        (value,) = _trees(tree.children)
        first = next(child for child in tree.children if isinstance(child, Token))
        if tree.data == "result":
            return Return(self.expression(value), self.location(first))
        return Assignment(self.identifier(first), self.expression(value))

    def expression(self, tree: Tree[Token]) -> Expression:
        match tree.data:
            case "chain":
                return self.chain(tree)
            case "unary":
                (operand,) = _trees(tree.children)
                minuses = list(_tokens(tree.children, "MINUS"))
                value = self.expression(operand)
                # An even number of signs cancels: no recursion over them.
                return Negation(value, self.location(minuses[0])) if len(minuses) % 2 else value
            case "number":
                (token,) = _tokens(tree.children, "NUMBER")
                return Number(str(token), self.location(token))
            case "string":
                (token,) = _tokens(tree.children, "STRING")
                return self.string(token)
            case "name":
                (token,) = _tokens(tree.children, "NAME")
                return self.identifier(token)
            case "call":
                (token,) = _tokens(tree.children, "NAME")
                arguments = tuple(self.argument(child) for child in _trees(tree.children))
                return Call(str(token), arguments, self.location(token))
            case _:
                raise AssertionError(tree.data)

    def chain(self, tree: Tree[Token]) -> Expression:
        first, *rest = tree.children
        assert isinstance(first, Tree)
        value = self.expression(first)
        if not rest:
            return value
        steps: list[Step] = []
        for operator, operand in zip(rest[::2], rest[1::2], strict=True):
            assert isinstance(operator, Token)
            assert isinstance(operand, Tree)
            steps.append(Step(str(operator), self.expression(operand), self.location(operator)))
        return Chain(value, tuple(steps), steps[0].location)

    def argument(self, tree: Tree[Token]) -> Argument:
        (value,) = _trees(tree.children)
        keyword = next((self.identifier(token) for token in _tokens(tree.children, "NAME")), None)
        return Argument(keyword, self.expression(value))
