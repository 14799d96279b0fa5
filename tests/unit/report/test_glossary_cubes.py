"""Words of machines of cubes are known to ``starc explain``, however they are written."""

import pytest

from starc.command_line.explain import explain
from starc.report.glossary_aliases import ALIASES
from starc.report.glossary_cubes import CUBE_TERMS
from starc.report.glossary_machines import MACHINE_TERMS
from starc.report.glossary_measures import MEASURE_TERMS
from starc.report.glossary_plans import PLAN_TERMS


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
    tables = (MEASURE_TERMS, PLAN_TERMS, MACHINE_TERMS, CUBE_TERMS, ALIASES)
    words = [word for table in tables for word in table]
    assert len(words) > 200
    assert len(words) == len(set(words))
