"""What makes a program that cannot be simulated."""

from __future__ import annotations


class DecodeError(ValueError):
    """A program that the event core cannot run on this machine."""
