"""Bytes that a launch, a layer or a run moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from starc.simulator.state.counts import (
    COUNT_DIE,
    COUNT_HBM_READ,
    COUNT_HBM_WRITE,
    COUNT_L2_HIT,
    COUNT_L2_MISS,
    COUNT_LOGICAL_DIE,
    COUNT_LOGICAL_USR,
    COUNT_LOGICAL_XGMI,
    COUNT_MALL_HIT,
    COUNT_NOC_LINKS,
    COUNT_REMOTE,
    COUNT_SLICE,
    COUNT_USR,
    COUNT_USR_LINKS,
    COUNT_XGMI,
    COUNTS,
)
from starc.targets.target import Target

Times: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    """Bytes of a launch, a layer or a run over the whole node.

    ``usr_bytes`` are bytes that crossed carrier-to-carrier links, counted once each, ``links`` the
    bytes times the links that they crossed, by class; ``logical`` counts each transfer between
    devices once, under the farthest class that it needs.
    """

    hbm_read_bytes: int
    hbm_write_bytes: int
    hbm_remote_bytes: int  # at memory of another carrier than the die's
    memory_bytes: int  # at memory slices, cache hits included
    mall_hit_bytes: int
    l2_hit_bytes: int
    l2_miss_bytes: int
    usr_bytes: int
    xgmi_bytes: int
    die_bytes: int
    links: Mapping[str, int]
    logical: Mapping[str, int]


def traffic_of(counts: Times, target: Target) -> Traffic:
    """The traffic of counters [..., kind], summed over everything else. The classes of links have
    the names that the target gives them."""
    total = counts.reshape(-1, COUNTS).sum(axis=0).tolist()
    classes = target.carrier_links_by_class
    links = dict(zip(classes, (total[COUNT_USR_LINKS], total[COUNT_NOC_LINKS]), strict=False))
    links[target.gpu_link] = total[COUNT_XGMI]
    if target.has_l2:
        links["die"] = total[COUNT_DIE]
    # Between devices of one carrier nothing but their ports is passed; between PEs links are.
    nearest = "die" if target.has_l2 else classes[0]
    logical = {
        classes[-1]: total[COUNT_LOGICAL_USR],
        target.gpu_link: total[COUNT_LOGICAL_XGMI],
        nearest: total[COUNT_LOGICAL_DIE],
    }
    return Traffic(
        hbm_read_bytes=total[COUNT_HBM_READ],
        hbm_write_bytes=total[COUNT_HBM_WRITE],
        hbm_remote_bytes=total[COUNT_REMOTE],
        memory_bytes=total[COUNT_SLICE],
        mall_hit_bytes=total[COUNT_MALL_HIT],
        l2_hit_bytes=total[COUNT_L2_HIT],
        l2_miss_bytes=total[COUNT_L2_MISS],
        usr_bytes=total[COUNT_USR],
        xgmi_bytes=total[COUNT_XGMI],
        die_bytes=total[COUNT_DIE],
        links=links,
        logical=logical,
    )
