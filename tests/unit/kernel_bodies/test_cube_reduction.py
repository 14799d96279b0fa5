"""What a merge over memory cubes needs: units, slots and messages, from the launch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from starc.core.collectives.head_owners import HeadScatter, default_root, head_owners
from starc.core.collectives.reduction_trees import CUBE_TREES, ELEMENT_TREES
from starc.core.sharding.mesh import AxisRef
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_fusion import merging_of
from starc.kernel_bodies.attention.cube_reduction import CubeReduction
from tests.executable.cube_decode import CubeCase, compiled

AXES = (AxisRef("cube"), AxisRef("pe"))


def reduction(
    owners: tuple[int, ...],
    cubes: int,
    elements: int,
    group: int | None = None,
    tasks: int = 1,
    inside: str = "tree",
    across: str = "mesh",
) -> CubeReduction:
    return CubeReduction(
        axes=AXES,
        cubes=cubes,
        elements=elements,
        owners=owners,
        group=group or len(owners),
        positions=1,
        tasks=tasks,
        head_dim=128,
        queue_depth=4,
        inside=inside,
        across=across,
    )


def test_all_heads_at_one_root_are_one_unit() -> None:
    plan = reduction((default_root(8, 8),) * 8, 8, 8)
    assert (plan.unit_heads, plan.units, plan.element_root) == (8, 1, 1)
    assert plan.messages == 63
    # 3 children inside a cube, 3 cubes at the root; a record is 8 x 130 f32 = 4,160 bytes.
    assert plan.queue_shapes == {"inside": (3, 1, 8, 130), "across": (3, 1, 8, 130)}


def test_spread_heads_are_units_of_their_own() -> None:
    plan = reduction(head_owners(8, 8, 8), 8, 8)
    assert (plan.unit_heads, plan.units, plan.element_root) == (1, 8, None)
    assert plan.messages == 8 * (8 * 7 + 7) == len(HeadScatter(plan.owners, 8, 8).messages)
    assert plan.queue_shapes == {
        "inside": (7, 1, 1, 130),
        "across": (3, 1, 1, 130),
        "record": (1, 1, 8, 130),
    }
    # More heads than ranks travel by two.
    assert reduction(head_owners(8, 2, 2), 2, 2).unit_heads == 2


def test_several_tasks_share_slots() -> None:
    plan = reduction((1,) * 8, 1, 2, tasks=3)
    assert plan.depth == 3
    assert reduction((1,) * 8, 1, 2, tasks=9).depth == 4
    # Two KV heads whose heads end at different ranks.
    two = reduction((0,) * 4 + (3,) * 4, 2, 2, group=4, tasks=2)
    assert (two.unit_heads, two.units, two.element_root) == (4, 1, None)
    assert two.unit_owners == (0, 3)
    assert two.kept == (0, 0)
    # Their ways differ: each has slots of its own.
    assert (two.patterns, two.turns, two.depth) == (2, 1, 1)
    assert two.queue_shapes["inside"] == (2, 1, 4, 130)
    assert reduction((3,) * 8, 2, 2, group=4, tasks=2).patterns == 1


def test_units_of_one_element_are_kept_and_taken_up() -> None:
    plan = reduction((0, 0, 4, 4), 2, 4)
    assert plan.element_root == 0
    assert plan.units == 2
    assert plan.keeps_records
    assert plan.queue_shapes["record"] == (1, 1, 4, 130)
    assert plan.kept == (0, 0)


@given(
    st.integers(1, 12),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from(ELEMENT_TREES),
    st.sampled_from(CUBE_TREES),
)
def test_slots_of_a_receiver_are_distinct(
    heads: int, cubes: int, elements: int, inside: str, across: str
) -> None:
    owners = head_owners(heads, cubes, elements)
    plan = reduction(owners, cubes, elements, inside=inside, across=across)
    assert plan.units * plan.unit_heads == heads
    taken: set[tuple[int, int]] = set()
    for unit, owner in enumerate(plan.unit_owners):
        tree = plan.trees[plan.roots.index(owner // elements)]
        for cube in range(cubes):
            for child in tree.children[cube]:
                slot = plan.places[unit] * plan.most_cubes + tree.slot(child)
                receiver = cube * elements + owner % elements
                assert slot < plan.across_slots
                assert (receiver, slot) not in taken
                taken.add((receiver, slot))
    for element in range(elements):
        own = [
            p for p, o in zip(plan.places, plan.unit_owners, strict=True) if o % elements == element
        ]
        assert own == list(range(len(own)))


def test_the_owners_come_from_the_encoding() -> None:
    def of(case: CubeCase) -> CubeReduction:
        (launch,) = [
            op
            for op in compiled(case, "plan-memory").walk()
            if isinstance(op, LaunchOp) and op.kind.data == "attention"
        ]
        found = CubeReduction.of(launch, case.target)
        assert found is not None
        assert len(launch.staging_names) == len(found.queue_shapes)
        return found

    root = of(CubeCase(2, 4, output="root", inside="ring"))
    assert (root.cubes, root.elements, root.inside, root.across) == (2, 4, "ring", "mesh")
    assert set(root.owners) == {default_root(2, 4)}
    scatter = of(CubeCase(2, 4, output="scatter"))
    assert scatter.owners == head_owners(8, 2, 4)
    groups = of(CubeCase(2, 2, sips=2, groups=2, heads=32, kv_heads=4, output="scatter"))
    assert groups.owners == head_owners(8, 2, 2)
    passes = of(CubeCase(2, 2, batch=6))
    assert (passes.tasks, passes.depth, passes.group) == (6, 4, 8)
    assert passes.gives_credits
    two = of(CubeCase(2, 2, sips=2, heads=16, kv_heads=4, batch=3))
    assert (two.tasks, two.group, len(two.owners)) == (6, 4, 8)


def test_a_head_that_several_devices_finish_is_not_merged_here() -> None:
    """Where the result has a head on several devices, they all-reduce, as on any machine."""
    module = compiled(CubeCase(2, 8, output="result"), "plan-memory")
    launches = [op for op in module.walk() if isinstance(op, LaunchOp)]
    (attention,) = [op for op in launches if op.kind.data == "attention"]
    assert merging_of(attention) is None
    assert len(attention.yielded) == 3
