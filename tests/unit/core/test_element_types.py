"""The table of element types."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import Float64Type, bf16, f16, f32, i8, i32

from starc.backend.expressions import FormatError
from starc.command_line.request_options import DTYPES
from starc.core.element_types import BY_NAME, FORMATS, ElementFormat, ElementType
from starc.dialects.element_types import element_type
from starc.frontend.model_parameters import DTYPES as MODEL_DTYPES


def test_every_code_has_a_row_and_names_are_those_of_the_ir():
    assert [row.code for row in FORMATS if row.code is not None] == list(ElementType)
    assert len(BY_NAME) == len(FORMATS)
    for attribute, code in zip((bf16, f16, f32, i32, i8), (0, 1, 2, 4, 5), strict=True):
        assert element_type(attribute) == code
    assert [code.bytes for code in ElementType] == [2, 2, 4, 1, 4, 1]


def test_types_of_the_ir_alone_cannot_be_packed():
    with pytest.raises(FormatError, match="elements of type f64 cannot be packed"):
        element_type(Float64Type())


@given(st.sampled_from(FORMATS[:4]), st.floats(-1e5, 1e5))
def test_rounding_once_is_rounding_for_good(row: ElementFormat, value: float):
    once = row.rounded(np.array([value]))
    assert once.dtype == row.numpy
    assert row.rounded(once).tobytes() == once.tobytes()


def test_float8_saturates():
    assert BY_NAME["f8E4M3FN"].rounded(np.array([1e6, -1e6])).astype(float).tolist() == [448, -448]


def test_no_two_types_share_a_spelling_and_those_of_models_have_a_tolerance():
    spellings = [name for row in FORMATS for name in {row.name, *row.spellings}]
    assert len(spellings) == len(set(spellings))
    assert all(row.tolerance is not None for row in FORMATS if row.spellings)
    assert all(row.spellings for row in FORMATS if row.is_cache_option or row.is_model_option)


def test_dtype_takes_what_the_language_takes():
    accepted = {name for row in MODEL_DTYPES.values() for name in row.spellings}
    assert {"auto", *accepted} == set(DTYPES)
    assert {"fp16", "bf16", "float"} <= accepted
    assert "fp8" not in accepted


def test_the_command_line_knows_the_types_without_numpy():
    code = "import sys, starc.command_line.arguments; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
