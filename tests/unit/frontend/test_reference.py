"""docs/language.md says what the language does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from starc.frontend.evaluation import ELEMENT_TYPES, RESERVED_WORDS
from starc.frontend.model_parameters import REALS, SIZES
from starc.frontend.signatures import SIGNATURES
from starc.frontend.workload import ENTRIES
from starc.quantities import UNITS
from tests.unit.frontend.models import load

REFERENCE = (Path(__file__).parents[3] / "docs" / "language.md").read_text("utf-8")
PROGRAMS = re.findall(r"```sa\n(.*?)```", REFERENCE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=["toy", "windows", "attention"])
def test_every_program_of_the_reference_compiles(program: str) -> None:
    load(program).module.verify()


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=lambda signature: signature.name)
def test_every_operation_is_in_the_reference(signature: object) -> None:
    meaning = getattr(signature, "meaning", "")
    assert f"| `{signature}` | {meaning} |" in REFERENCE


@pytest.mark.parametrize(
    "word",
    [
        *(*SIZES, *REALS, "dtype", "kv_dtype"),
        *RESERVED_WORDS,
        *ELEMENT_TYPES,
        *(unit for unit in UNITS if unit),
        *ENTRIES,
        *(entry for entries in ENTRIES.values() for entry in entries),
    ],
)
def test_every_word_with_a_meaning_is_in_the_reference(word: str) -> None:
    assert f"`{word}`" in REFERENCE
