"""argparse with the words of this tool: suggestions, topics, and errors that say where help is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """argparse with suggestions for misspelt options and choices."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n  '{self.prog} --help' shows the options\n")

    def refuse_unknown(self, unknown: list[str]) -> NoReturn:
        """Ends with the first unknown argument and the option that it resembles."""
        word = unknown[0]
        options = [option for option in self._option_string_actions if option.startswith("--")]
        close = get_close_matches(word.split("=")[0], options, n=1, cutoff=0.75)
        if word.startswith("-"):
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            self.error(f"unknown option '{word.split('=')[0]}'{hint}")
        self.error(f"unexpected argument '{word}'")

    def topics(self) -> Iterator[tuple[str, list[argparse.Action]]]:
        """(title, options) of each group that has options beside ``--help``."""
        for group in self._action_groups:
            actions = [action for action in group._group_actions if action.dest != "help"]
            if actions:
                title = group.title or ""
                yield "argument" if title == "positional arguments" else title, actions

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            close = get_close_matches(str(value), choices, n=1)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise argparse.ArgumentError(
                action, f"'{value}' does not exist{hint}\n  choose from: {', '.join(choices)}"
            )
