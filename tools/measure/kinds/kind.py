"""What a kind of measurement is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from device import Device
    from table import Value

Extent = Literal["quick", "default", "wide"]
"""How many cases: a few of each shape of program, the usual ones, or the usual ones' neighbours."""

Case = Mapping[str, Any]
Row = tuple[str, Mapping[str, "Value | None"]]


@dataclass(frozen=True)
class Kind:
    """One kind of measurement.

    ``files`` are the CSV files that it writes with their columns; ``cases`` lists what is
    measured, the most telling first; ``run`` measures one case and yields (file, row). ``share``
    weighs the kinds where the time is limited; ``gpus`` is how many a case needs.
    """

    name: str
    about: str
    files: Mapping[str, Sequence[str]]
    cases: Callable[[Extent], list[dict[str, Any]]]
    run: Callable[[Device, Case], Iterable[Row]]
    share: float = 1.0
    gpus: int = 1
