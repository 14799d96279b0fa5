"""xDSL's parser, with a location for every operation.

An operation whose text says no location gets the place of the text itself, as in MLIR: whatever is
wrong with it, before or after a pass, can be pointed at.
"""

from __future__ import annotations

from bisect import bisect_right

from xdsl.context import Context
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.parser import Parser


class LocatedParser(Parser):
    """Parses a text that is a file, or begins after ``line_offset`` lines of one. ``complete``
    tells whether every operation had a location of its own."""

    def __init__(self, context: Context, text: str, file: str, line_offset: int = 0) -> None:
        super().__init__(context, text, file)
        self.complete = True
        self._file = StringAttr(file)
        self._line_offset = line_offset
        self._line_starts = [0]
        for line in text.split("\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        op = super().parse_operation()
        if isinstance(op.location, UnknownLoc):
            self.complete = False
            line = bisect_right(self._line_starts, start)
            column = start - self._line_starts[line - 1] + 1
            op.location = FileLineColLoc(
                self._file, IntAttr(line + self._line_offset), IntAttr(column)
            )
        return op
