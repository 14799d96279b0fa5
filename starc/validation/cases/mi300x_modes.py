"""What cases of public MI300X figures share: machines in the mode of a row."""

from __future__ import annotations

from dataclasses import replace

from starc.targets.target import Target
from starc.validation.context import Context

NODE = 8


def machine(context: Context, mode: str, *, product: str = "mi300x", gpus: int = 1) -> Target:
    """A product in a mode, with the overrides of the validation. A machine file of the user's
    stands for ``mi300x`` in the mode that it names; a row of another mode needs the product."""
    if context.target is not None and context.target.endswith(".toml") and product == "mi300x":
        found = context.machine(context.target, gpus)
        if found.mode == mode:
            return found
    return replace(context, target=None).machine(f"{product}-{mode}", gpus)
