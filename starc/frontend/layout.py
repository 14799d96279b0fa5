"""Which new lines of a file are tokens: those that separate statements, entries or blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lark import Token
from lark.lark import PostLex

NEWLINE = "_NEWLINE"
BLOCK_KEYWORDS = {"MODEL": "model", "LAYER": "layer", "STACK": "stack", "PHASE": "phase"}


class AllTerminals(PostLex):
    """Keeps the terminals that no rule has in the lexer; messages are made from them."""

    always_accept: Iterable[str] = (NEWLINE, "UNCLOSED_STRING", "STRAY")

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        return stream


def significant(tokens: Iterable[Token]) -> Iterator[Token]:
    """``tokens`` without the new lines that separate nothing.

    One stands for several in a row. None stays inside parentheses, after ``{`` and ``,``, before
    ``{`` and ``}``, and at either end of the file. A block's keyword at the start of a line closes
    parentheses that were left open, so that one forgotten ``)`` does not swallow the file.
    """
    newline: Token | None = None
    previous: str | None = None
    depth = 0
    for token in tokens:
        if token.type == NEWLINE:
            newline = token
            continue
        if newline is not None:
            if token.type in BLOCK_KEYWORDS:
                depth = 0
            separates = previous not in (None, "LBRACE", "COMMA")
            if separates and depth == 0 and token.type not in ("LBRACE", "RBRACE", "$END"):
                yield newline
            newline = None
        if token.type == "LPAR":
            depth += 1
        elif token.type == "RPAR":
            depth = max(0, depth - 1)
        yield token
        previous = token.type
