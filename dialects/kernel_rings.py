"""Launches of attention whose keys go around the cubes of a group.

The keys of such a launch are gathered in its body. Of the axes of the gather those over which its
query heads are split are the cubes, the others the PEs of a cube.
"""

from __future__ import annotations

from starc.core.collectives.rectangles import cube_shape, element_shape
from starc.core.kernel_schedules.ring_prefill import RingProblem, ring_order
from starc.core.sharding.attention_sharding import without
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.diagnostics import counted
from starc.dialects.collective import AllGatherOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import attention_of, gather_of, tensor
from starc.dialects.sharding import encoding_of, global_shape, mesh_of
from starc.targets.cubes import NOC, PE_MESH


def gather_in(launch: LaunchOp) -> AllGatherOp:
    """The gather of the keys. Raises ``ValueError`` for a launch without one."""
    gather = gather_of(attention_of(launch))
    if gather is None:
        raise ValueError("keys that go around are gathered in the launch of their attention")
    return gather


def cube_axes(launch: LaunchOp) -> tuple[AxisRef, ...]:
    """The axes of the ring."""
    mesh, axes = mesh_of(launch), gather_in(launch).axes.data
    encoding = encoding_of(attention_of(launch).query.type, mesh)
    heads = encoding.dims[2].axes if encoding is not None else ()
    return without(mesh, axes, without(mesh, axes, heads))


def ring_of(launch: LaunchOp) -> tuple[int, ...]:
    """The cubes in the order of the ring: along neighbours of their rectangle."""
    mesh, cubes = mesh_of(launch), cube_axes(launch)
    size = mesh.refs_size(cubes)
    classes = {_link_class(mesh, ref) for ref in cubes}
    if classes == {NOC}:
        return ring_order(*cube_shape(size))
    if classes == {PE_MESH}:
        return ring_order(*element_shape(size))
    return tuple(range(size))


def ring_text(launch: LaunchOp) -> str:
    """How many of what keys go around: ``8 cubes``, or PEs where the ring has several of a cube."""
    mesh, cubes = mesh_of(launch), cube_axes(launch)
    inside = any(_link_class(mesh, ref) == PE_MESH for ref in cubes)
    return counted(mesh.refs_size(cubes), "PE" if inside else "cube")


def _link_class(mesh: Mesh, ref: AxisRef) -> str | None:
    return mesh.link_class((ref,))


def rows_are_split(launch: LaunchOp) -> bool:
    """Whether query rows of an attention are split over devices."""
    encoding = encoding_of(attention_of(launch).query.type, mesh_of(launch))
    return encoding is not None and encoding.ranks(1) > 1


def ring_problem(launch: LaunchOp) -> RingProblem:
    """What goes around, in tiles of one row and one key. Raises ``ValueError`` where query rows
    are not split over the PEs of a cube."""
    op, mesh = attention_of(launch), mesh_of(launch)
    cache = tensor(gather_in(launch).inputs[0])
    keys, rows = encoding_of(cache, mesh), encoding_of(op.query.type, mesh)
    assert keys is not None
    assert rows is not None
    cubes = mesh.refs_size(cube_axes(launch))
    pes = keys.ranks(2) // cubes
    if rows.ranks(1) != pes:
        raise ValueError(
            f"keys go around {cubes} cubes of {pes} PEs, over which query rows are not split: "
            "shard-attention-sequence does that with mode=ring"
        )
    return RingProblem(
        cubes=cubes,
        pes=pes,
        query=global_shape(tensor(op.query))[1],
        start=op.start.value.data,
        context=global_shape(cache)[2],
        keys=keys.dims[2].map,
        rows=rows.dims[1].map,
        row_tile=1,
        key_tile=1,
    )
