"""The configuration of mutation testing names what there is."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
CONFIGURATION: dict[str, Any] = tomllib.loads((ROOT / "tools" / "mutation.toml").read_text())


def source(module: str) -> Path:
    """The file of a module; two folders lie beside the package."""
    parts = module.split(".")
    inside = parts[1:] if parts[1] in ("dialects", "passes") else parts
    return ROOT.joinpath(*inside).with_suffix(".py")


def test_mutated_modules_and_their_tests_exist() -> None:
    for modules in CONFIGURATION["groups"].values():
        for module, tests in modules.items():
            assert source(module).is_file(), module
            assert tests
            for test in tests:
                assert (ROOT / test).is_file(), test


def test_equivalent_mutants_are_of_mutated_modules_and_have_a_reason() -> None:
    mutated = {module for modules in CONFIGURATION["groups"].values() for module in modules}
    for row in CONFIGURATION["equivalent"]:
        assert row["module"] in mutated
        assert row["mutants"]
        assert row["line"] not in row["mutants"]
        assert row["reason"]
