"""Collecting what is wrong with a file, to say it all at once."""

from __future__ import annotations

from collections.abc import Sequence

from starc.diagnostics import Diagnostic, InputError, Location, Severity, did_you_mean


class Problems:
    """The diagnostics of one file, in the order of its lines when they are raised."""

    def __init__(self, file: str, text: str) -> None:
        self.sources = {file: text}
        self._found: list[Diagnostic] = []

    def report(
        self,
        message: str,
        location: Location | None = None,
        *,
        key: str | None = None,
        hint: str | None = None,
        severity: Severity = "error",
    ) -> None:
        """Adds a diagnostic; one that was reported already is not repeated."""
        diagnostic = Diagnostic(message, location, key, hint, severity)
        if diagnostic not in self._found:
            self._found.append(diagnostic)

    def unknown_name(
        self, what: str, name: str, known: Sequence[str], location: Location | None
    ) -> None:
        """Reports a name that means nothing, with the closest one that does."""
        self.report(f"unknown {what} '{name}'", location, hint=did_you_mean(name, known))

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        return tuple(found for found in self._found if found.severity == "warning")

    def raise_if_any(self) -> None:
        """Raises ``InputError`` if there is an error."""
        errors = [found for found in self._found if found.severity == "error"]
        if errors:
            first = Location("", 0, 0)
            errors.sort(key=lambda found: found.location or first)
            raise InputError(errors, self.sources)
