"""Words of machines of cubes are known to ``starc explain``, however they are written."""

import ast
import inspect

import pytest

from starc.command_line.explain import explain
from starc.report import glossary
from starc.report.glossary_cubes import CUBE_ALIASES, CUBE_TERMS


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("opt1", "'blocking'"), ("opt2", "'stateful'"), ("opt3", "'pipelined'"),
        ("blocking", "'blocking'"), ("stateful", "'stateful'"), ("composite", "One command"),
        ("IPCQ", "credit"), ("SIP", "4 x 4"), ("PE", "Processing element"), ("cube", "eight PEs"),
        ("bubbles", "Idle time"), ("semaphore", "acquires"), ("ring", "cubes of a group"),
        ("root", "output=root"), ("scatter", "output=scatter"),
    ],
)  # fmt: skip
def test_words(word: str, said: str) -> None:
    assert said in " ".join(explain(word).split())


def test_no_word_is_explained_twice() -> None:
    tree = ast.parse(inspect.getsource(glossary))
    tables = [node.value for node in tree.body if isinstance(node, ast.AnnAssign)]
    own = {
        key.value
        for table in tables
        if isinstance(table, ast.Dict)
        for key in table.keys
        if isinstance(key, ast.Constant)
    }
    assert len(own) > 100
    assert not own & {*CUBE_TERMS, *CUBE_ALIASES}
