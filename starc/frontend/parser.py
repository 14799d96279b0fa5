"""Text to tokens to syntax tree, with all syntax errors of a file in one go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken
from lark.parsers.lalr_interactive_parser import InteractiveParser

from starc.diagnostics import Diagnostic, InputError, Location, suggestion
from starc.frontend.layout import BLOCK_KEYWORDS, NEWLINE, AllTerminals, significant
from starc.frontend.source import Source
from starc.frontend.syntax import Expression, SourceFile
from starc.frontend.tree_conversion import convert_expression, convert_file

_MOST_TOKENS = 200_000
_DEEPEST_NESTING = 64
_MOST_ERRORS = 20

# The tokens that lead into a block, for going on after an error inside it.
_BLOCK_OPENINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "MODEL": (("MODEL", "model"), ("LBRACE", "{")),
    "STACK": (("STACK", "stack"), ("LBRACE", "{")),
    "PHASE": (("PHASE", "phase"), ("NAME", "decode"), ("LBRACE", "{")),
    "LAYER": (
        ("LAYER", "layer"),
        ("NAME", "a"),
        ("LPAR", "("),
        ("NAME", "x"),
        ("RPAR", ")"),
        ("LBRACE", "{"),
    ),
}

# What comes behind a keyword where it is none of the user's names.
_BEHIND_KEYWORD = {
    "MODEL": {"STRING", "LBRACE"},
    "STACK": {"LBRACE"},
    "PHASE": {"NAME"},
    "LAYER": {"NAME"},
    "RETURN": {"NAME", "NUMBER", "STRING", "LPAR", "MINUS"},
}

_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    NEWLINE: "a new line",
    "$END": "the end of the file",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "EQUAL": "'='",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "STAR": "'*'",
    "SLASH": "'/'",
    "RETURN": "'return'",
    **{terminal: f"'{word}'" for terminal, word in BLOCK_KEYWORDS.items()},
}
_EXPRESSION_STARTS = {"NAME", "NUMBER", "STRING", "LPAR", "MINUS"}
_OPERATORS = {"PLUS", "MINUS", "STAR", "SLASH"}


@lru_cache(maxsize=2)
def _lark(start: str) -> Lark:
    grammar = files("starc.frontend").joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start=start,
        postlex=AllTerminals(),
        propagate_positions=True,
    )


def parse_source(source: Source) -> SourceFile:
    """The syntax tree of a file. Raises ``InputError`` with every syntax error found."""
    return convert_file(source.file, _Parse(source, _lark("start")).run())


def parse_expression(source: Source) -> Expression:
    """The syntax tree of one expression, as ``--set`` takes it. Raises ``InputError``."""
    return convert_expression(source.file, _Parse(source, _lark("expression")).run())


@dataclass
class _Parse:
    """One run over the tokens of a file. After an error it goes on with the next line of the same
    block in a new parser, whose tree nobody uses."""

    source: Source
    lark: Lark
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])
    # All tokens and the end, and those of them that the parser sees.
    written: list[Token] = field(default_factory=list[Token])
    tokens: list[Token] = field(default_factory=list[Token])
    # Where the token at hand stands: the block's keyword, and the brackets around it.
    block: str | None = None
    brackets: list[Token] = field(default_factory=list[Token])
    # Where the parser at hand started: the block that it started in, and its first token.
    started_in: str | None = None
    started_at: int = 0

    def run(self) -> Tree[Token]:
        """Raises ``InputError``."""
        self._read_tokens()
        parser = self._start(None, 0)
        position = 0
        result: object = None
        while position < len(self.tokens):
            try:
                result = parser.feed_token(self.tokens[position])
            except UnexpectedToken:
                self._report(position)
                if len(self.diagnostics) == _MOST_ERRORS:
                    break
                position, parser = self._recover(position)
            else:
                self._enter(self.tokens[position])
                position += 1
        if self.diagnostics:
            raise self._error()
        assert isinstance(result, Tree)
        return cast("Tree[Token]", result)

    # -- tokens ------------------------------------------------------------------------------

    def _read_tokens(self) -> None:
        """Raises ``InputError`` where there are too many or they nest too deeply."""
        depth = 0
        text = self.source.text
        for token in self.lark.lex(text):  # pyright: ignore[reportUnknownMemberType]
            self.written.append(token)
            depth += {"LPAR": 1, "RPAR": -1}.get(token.type, 0)
            if depth > _DEEPEST_NESTING:
                self._add(token, f"parentheses are nested more than {_DEEPEST_NESTING} deep")
                raise self._error()
            if len(self.written) > _MOST_TOKENS:
                self._add(token, f"the file has more than {_MOST_TOKENS} words and signs")
                raise self._error()
        line, column = 1, 1
        if self.written:
            line, column = self.written[-1].end_line, self.written[-1].end_column
        self.written.append(Token("$END", "", len(text), line, column))
        self.tokens = list(significant(self.written))

    def _enter(self, token: Token) -> None:
        match token.type:
            case "LBRACE" | "LPAR":
                self.brackets.append(token)
            case "RPAR":
                self.brackets.pop()
            case "RBRACE":
                self.brackets.clear()
                self.block = None
            case _ if not self.brackets and token.type in BLOCK_KEYWORDS:
                self.block = token.type
            case _:
                pass

    # -- errors ------------------------------------------------------------------------------

    def _error(self) -> InputError:
        return InputError(self.diagnostics, {self.source.file: self.source.text})

    def _add(self, token: Token, message: str, hint: str | None = None) -> None:
        location = Location(self.source.file, token.line or 1, token.column or 1)
        self.diagnostics.append(Diagnostic(message, location, hint=hint))

    def _report(self, position: int) -> None:
        token = self.tokens[position]
        if token.type == "UNCLOSED_STRING":
            self._add(token, "the string is not closed: it has to end on its line")
            return
        # A parser that failed has lost what it would have accepted: ask one that stands before
        # the token.
        parser = self._start(self.started_in, self.started_at)
        accepted: set[str] = set()
        for earlier in self.tokens[self.started_at : position]:
            if earlier is self.tokens[position - 1] and earlier.type == NEWLINE:
                # A new line before '}' is no token, so the parser no longer thinks of it.
                accepted = {"RBRACE"} & cast("set[str]", parser.accepts())
            parser.feed_token(earlier)
        accepted |= cast("set[str]", parser.accepts())
        found = {NEWLINE: "end of the line", "$END": "end of the file"}.get(
            token.type, f"'{token}'"
        )
        message = f"unexpected {found}; expected {_alternatives(accepted)}"
        if "NAME" in accepted and self._is_misplaced_keyword(position):
            self._add(token, f"'{token}' is a keyword and cannot be a name")
            return
        self._add(token, message, self._hint(token, accepted))

    def _hint(self, token: Token, accepted: Collection[str]) -> str | None:
        if self.brackets and self.brackets[-1].line != token.line:
            bracket = self.brackets[-1]
            ends_block = token.type in BLOCK_KEYWORDS or token.type == "$END"
            if (bracket.type == "LPAR" and "RPAR" in accepted) or ends_block:
                return f"the '{bracket}' in line {bracket.line} is not closed"
        if token.type == NEWLINE and set(accepted) >= _EXPRESSION_STARTS:
            return "an expression goes on in the next line only inside parentheses"
        if token.type == "NAME":
            keywords = [word for name, word in BLOCK_KEYWORDS.items() if name in accepted]
            if "RETURN" in accepted:
                keywords.append("return")
            return suggestion(str(token), keywords)
        return None

    # -- recovery ----------------------------------------------------------------------------

    def _start(self, block: str | None, position: int) -> InteractiveParser:
        """A parser that stands outside of all blocks, or inside one of the kind of ``block``, and
        expects the token at ``position``."""
        self.started_in, self.started_at = block, position
        parser = self.lark.parse_interactive()  # pyright: ignore[reportUnknownMemberType]
        for terminal, text in _BLOCK_OPENINGS[block] if block is not None else ():
            parser.feed_token(Token(terminal, text))
        return parser

    def _recover(self, position: int) -> tuple[int, InteractiveParser]:
        """Where to go on after an error at ``position``, and the parser for it: the next line of
        the block, its end, its beginning if the error stands before it, or the next block."""
        inside = any(bracket.type == "LBRACE" for bracket in self.brackets)
        if inside and len(self.brackets) > 1 and self._starts_line(position):
            # Most likely a statement before it has a parenthesis open: start over with the line,
            # whose new lines were dropped as standing inside of that parenthesis.
            if position > self.started_at and self.tokens[position].type == "NAME":
                del self.brackets[1:]
                begin = next(
                    index
                    for index, token in enumerate(self.written)
                    if token is self.tokens[position]
                )
                self.tokens[position:] = significant(self.written[begin:])
                return position, self._start(self.block, position)
        for index in range(position, len(self.tokens)):
            token = self.tokens[index]
            if (
                token.type in BLOCK_KEYWORDS
                and self._starts_line(index)
                and not self._is_misplaced_keyword(index)
            ):
                self.block = None
                self.brackets.clear()
                return index, self._start(None, index)
            if self.block is not None and not inside and token.type == "LBRACE":
                self.brackets = [token]
                return index + 1, self._start(self.block, index + 1)
            if inside and token.type in (NEWLINE, "RBRACE"):
                del self.brackets[1:]
                following = index + 1 if token.type == NEWLINE else index
                return following, self._start(self.block, following)
        return len(self.tokens), self._start(None, len(self.tokens))

    def _is_misplaced_keyword(self, index: int) -> bool:
        """Whether a keyword stands where a name would: nothing behind it fits the keyword."""
        behind = _BEHIND_KEYWORD.get(self.tokens[index].type)
        following = self.tokens[index + 1].type if index + 1 < len(self.tokens) else "$END"
        return behind is not None and following not in behind

    def _starts_line(self, index: int) -> bool:
        return index == 0 or self.tokens[index - 1].line != self.tokens[index].line


def _alternatives(accepted: Collection[str]) -> str:
    """The accepted tokens in words: ``',', ')' or an operator``."""
    remaining = set(accepted)
    groups: list[str] = []
    if remaining >= _EXPRESSION_STARTS:
        remaining -= _EXPRESSION_STARTS
        groups.append("an expression")
    if remaining >= _OPERATORS:
        # Any name could be an operation's: '(' after it would only distract.
        remaining -= _OPERATORS | {"LPAR"}
        groups.append("an operator")
    words = [*(word for name, word in _WORDS.items() if name in remaining), *groups]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" or {words[-1]}"
