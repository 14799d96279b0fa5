"""The merge of partial attention over the ranks of a group of memory cubes: what a launch needs.

Each rank, a processing element of a cube, has a partial (m, l, o) of all query heads of a KV head.
Heads end at their owners, which the encoding of the scattered result names: all at one rank (the
root of the group), or spread. Heads of a task that have one owner are a *unit* and travel together.

Units go in two levels, along the plans of ``starc.core.collectives.reduction_trees``: inside a cube
to the element that has the owner's number, then from cube to cube. A rank sends when it has what it
sends, and merges what arrives in the order of its children: no rank waits for others of its level.
What is sent goes into a slot of a queue in the receiver's scratch memory. A launch of several tasks
uses the slots again: a sender waits for the credit of the task that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from starc.core.collectives.reduction_trees import ACROSS, INSIDE, Tree, cube_tree, element_tree
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.core.tiling import ceil_div
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import merging_of
from starc.dialects.kernel_problems import tensor
from starc.dialects.sharding import encoding_of, global_shape, mesh_of
from starc.targets.cubes import PE_MESH
from starc.targets.target import Target


@dataclass(frozen=True)
class CubeReduction:
    """The reduction of one launch. ``owners`` are the ranks of heads, of all that a device has in
    its group, in order."""

    axes: tuple[AxisRef, ...]
    cubes: int
    elements: int
    owners: tuple[int, ...]
    group: int  # heads of a task
    positions: int  # of queries of a task
    tasks: int  # of a device, one after the other
    head_dim: int
    queue_depth: int
    inside: str = INSIDE
    across: str = ACROSS

    @classmethod
    def of(cls, launch: LaunchOp, target: Target) -> CubeReduction | None:
        """The reduction of an attention launch on a machine of cubes; ``None`` where it has none.
        Raises ``ValueError`` where a head has several owners, or none."""
        merging = merging_of(launch)
        if merging is None or not target.engines:
            return None
        mesh = mesh_of(launch)
        axes = tuple(merging.scatter.axes.data)
        elements = 1
        for ref in axes:
            if mesh.axis(ref.name).link_class == PE_MESH:
                elements *= mesh.ref_size(ref)
        batch, query, heads = tensor(merging.partial.m).get_shape()
        group = launch.integer("group")
        rows = launch.integers("tile")[0]
        positions = min(query, max(1, rows // group))
        return cls(
            axes=axes,
            cubes=mesh.refs_size(axes) // elements,
            elements=elements,
            owners=_owners(launch, mesh),
            group=group,
            positions=positions,
            tasks=batch * (heads // group) * ceil_div(query, positions),
            head_dim=merging.finish.head_dim.value.data,
            queue_depth=max(1, target.queue_depth),
            inside=launch.reduce_inside.data if launch.reduce_inside is not None else INSIDE,
            across=launch.reduce_across.data if launch.reduce_across is not None else ACROSS,
        )

    @property
    def ranks(self) -> int:
        return self.cubes * self.elements

    @property
    def width(self) -> int:
        """Columns of a record: output, sum and maximum."""
        return self.head_dim + 2

    @cached_property
    def patterns(self) -> int:
        """Tasks of different ways: KV heads whose heads do not have the same owners. They take
        turns, each with slots of its own, so that one slot always has one sender."""
        tasks = {
            self.owners[first : first + self.group]
            for first in range(0, len(self.owners), self.group)
        }
        return len(self.owners) // self.group if len(tasks) > 1 else 1

    @property
    def turns(self) -> int:
        """Tasks of a pattern, one after the other."""
        return self.tasks // self.patterns

    @property
    def depth(self) -> int:
        """Tasks of a pattern whose records a queue has room for."""
        return min(self.turns, self.queue_depth)

    @property
    def gives_credits(self) -> bool:
        """Whether slots are used again."""
        return self.turns > self.depth

    # Units

    @cached_property
    def unit_heads(self) -> int:
        """Heads that always have one owner together."""
        for size in range(self.group, 0, -1):
            blocks = range(0, len(self.owners), size)
            if self.group % size == 0 and all(
                len(set(self.owners[first : first + size])) == 1 for first in blocks
            ):
                return size
        return 1

    @property
    def units(self) -> int:
        """Units of a task."""
        return self.group // self.unit_heads

    @cached_property
    def unit_owners(self) -> tuple[int, ...]:
        """The owners of all units of a device, task after task."""
        return self.owners[:: self.unit_heads]

    @cached_property
    def element_root(self) -> int | None:
        """The element that gets all units of its cube; ``None`` where they are spread."""
        numbers = {owner % self.elements for owner in self.unit_owners}
        return numbers.pop() if len(numbers) == 1 else None

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Of every unit the number that it has among those of its task for the same element."""
        found: list[int] = []
        for number, owner in enumerate(self.unit_owners):
            task = self.unit_owners[number // self.units * self.units : number]
            found.append(sum(other % self.elements == owner % self.elements for other in task))
        return tuple(found)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Of every unit the first of its heads among those of its owner."""
        return tuple(
            self.unit_heads * self.unit_owners[:number].count(owner)
            for number, owner in enumerate(self.unit_owners)
        )

    @property
    def places_each(self) -> int:
        """Units of a task that an element has at most."""
        return max(self.places) + 1

    # Ways

    @cached_property
    def tree(self) -> Tree:
        """Inside a cube, where one element gets everything."""
        assert self.element_root is not None
        return element_tree(self.inside, self.elements, self.element_root)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The cubes that own something."""
        return tuple(sorted({owner // self.elements for owner in self.unit_owners}))

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """From cube to cube, one for each of ``roots``."""
        return tuple(cube_tree(self.across, self.cubes, root) for root in self.roots)

    # Queues: slots of one task, and what one holds

    @property
    def inside_slots(self) -> int:
        if self.element_root is not None:
            return self.tree.most_children
        return self.places_each * (self.elements - 1)

    @property
    def across_slots(self) -> int:
        return self.places_each * self.most_cubes

    @property
    def most_cubes(self) -> int:
        """Cubes that one gets a unit from, at most."""
        return max(tree.most_children for tree in self.trees)

    @property
    def keeps_records(self) -> bool:
        """Whether a rank stores the record of a task to take it up again unit by unit."""
        return self.units > 1 or self.element_root is None

    @property
    def queue_shapes(self) -> dict[str, tuple[int, ...]]:
        """The queues: records that come from inside the cube, from other cubes, and a task's own
        where it is taken up unit by unit."""
        unit = (self.positions, self.unit_heads, self.width)
        whole = (self.positions, self.group, self.width)
        shapes: dict[str, tuple[int, ...]] = {}
        if self.inside_slots:
            record = whole if self.element_root is not None else unit
            shapes["inside"] = (self.depth * self.patterns * self.inside_slots, *record)
        if self.across_slots:
            shapes["across"] = (self.depth * self.patterns * self.across_slots, *unit)
        if self.keeps_records:
            shapes["record"] = (1, *whole)
        return shapes

    # What happens

    @property
    def messages(self) -> int:
        """Records that ranks of a group send each other for one task."""
        inner = self.cubes * (self.elements - 1)
        if self.element_root is None:
            inner *= self.units
        return inner + self.units * (self.cubes - 1)

    def table(self, value: Callable[[Tree, int], int]) -> tuple[int, ...]:
        """A number of every cube in every tree of ``roots``."""
        return tuple(value(tree, cube) for tree in self.trees for cube in range(self.cubes))

    def children(self, trees: Sequence[Tree], most: int) -> tuple[int, ...]:
        """The children of every rank of every tree, ``most`` each."""
        return tuple(
            children[slot] if slot < len(children) else 0
            for tree in trees
            for children in tree.children
            for slot in range(most)
        )


def _owners(launch: LaunchOp, mesh: Mesh) -> tuple[int, ...]:
    """The rank of each head of a device, which is the same in every group."""
    merging = merging_of(launch)
    assert merging is not None
    whole, part = merging.scatter.inputs[0], merging.scatter.outputs[0]
    outer, inner = encoding_of(whole.type, mesh), encoding_of(part.type, mesh)
    if outer is None or inner is None:
        raise ValueError("the heads of an attention are scattered without encodings")
    extent = global_shape(cast("TensorType[Attribute]", whole.type))[2]
    coords = list(mesh.devices())
    found: set[tuple[int, ...]] = set()
    for members in mesh.groups(merging.scatter.axes.data):
        held = outer.global_indices(2, extent, coords[members[0]]).tolist()
        ranks: dict[int, int] = {}
        for rank, member in enumerate(members):
            for head in inner.global_indices(2, extent, coords[member]).tolist():
                if head in ranks:
                    raise ValueError(f"query head {head} is finished by several devices")
                ranks[head] = rank
        if sorted(ranks) != sorted(held):
            raise ValueError("the heads that a group finishes are not those that it attends with")
        found.add(tuple(ranks[head] for head in held))
    if len(found) > 1:
        raise ValueError("the owners of heads are not the same ranks in every group")
    return found.pop()
