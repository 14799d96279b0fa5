"""Device meshes: named axes on levels, references to axes and sub-axes, groups of devices.

A mesh is a grid of devices. Its axes are listed outer to inner; the device id is the row-major
rank over them, so the last axis varies fastest. Nothing in a compiler pass names an axis: a pass
asks the mesh for its levels and link classes.

    >>> mesh = Mesh("node", (Axis("gpu", 2, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
    >>> mesh.size
    8
    >>> mesh.device_id({"gpu": 1, "xcd": 2})
    6
    >>> mesh.groups((AxisRef("gpu"),))
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    >>> mesh.groups((AxisRef("gpu"), AxisRef("xcd", pre_size=1, size=2)))
    [(0, 2, 4, 6), (1, 3, 5, 7)]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache


@dataclass(frozen=True)
class LinkPart:
    """A factor of an axis whose links differ from the rest of it (dies of one carrier, say)."""

    name: str
    size: int
    link_class: str


@dataclass(frozen=True)
class Axis:
    """One axis of a mesh.

    ``level`` is the level of the machine it belongs to (``outer``, ``inner``), ``link_class`` the
    class of the links its devices communicate over. ``parts`` is empty unless the links differ
    along the axis; then it lists the factors, major to minor, whose sizes multiply to ``size``.
    """

    name: str
    size: int
    level: str = "outer"
    link_class: str = "link"
    parts: tuple[LinkPart, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f'size of axis "{self.name}" must be at least 1, got {self.size}')
        if self.parts and math.prod(part.size for part in self.parts) != self.size:
            raise ValueError(f'parts of axis "{self.name}" do not multiply to its size {self.size}')


@dataclass(frozen=True)
class AxisRef:
    """A whole axis, or the factor of it that follows ``pre_size`` more major parts.

    ``AxisRef("x", 2, 4)`` prints as ``"x":(2)4``: of an axis of 16 it is the middle factor of
    2 x 4 x 2. ``size`` is ``None`` for a whole axis.
    """

    name: str
    pre_size: int = 1
    size: int | None = None

    def __post_init__(self) -> None:
        if self.pre_size < 1 or (self.size is not None and self.size < 1):
            raise ValueError(f"sub-axis sizes must be at least 1: {self}")
        if self.size is None and self.pre_size != 1:
            raise ValueError("a sub-axis needs a size")

    def __str__(self) -> str:
        if self.size is None:
            return f'"{self.name}"'
        return f'"{self.name}":({self.pre_size}){self.size}'


def axes_text(axes: Iterable[AxisRef]) -> str:
    """``"gpu", "xcd":(1)2``: how attributes and messages print an axis list."""
    return ", ".join(str(axis) for axis in axes)


class MeshError(ValueError):
    """An axis reference that the mesh does not have."""


@dataclass(frozen=True)
class Mesh:
    """A grid of devices with named axes, outer to inner."""

    name: str
    axes: tuple[Axis, ...]

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f'duplicate axis name: "{name}"')

    @classmethod
    def from_rows(cls, name: str, rows: Iterable[Sequence[object]]) -> Mesh:
        """The mesh of rows ``(axis, size, level, link_class)``, as a target lists them."""
        axes: list[Axis] = []
        for axis, size, level, link_class in rows:
            assert isinstance(size, int)
            axes.append(Axis(str(axis), size, str(level), str(link_class)))
        return cls(name, tuple(axes))

    # Sizes and levels

    @cached_property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def _by_name(self) -> dict[str, Axis]:
        return {axis.name: axis for axis in self.axes}

    def axis(self, name: str) -> Axis:
        """The axis of that name; ``MeshError`` if there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise MeshError(f'unknown axis name: "{name}"') from None

    def levels(self) -> tuple[str, ...]:
        """The names of the levels, outer to inner, each once."""
        return tuple(dict.fromkeys(axis.level for axis in self.axes))

    def level_axes(self, level: str) -> tuple[AxisRef, ...]:
        """References to the whole axes of a level."""
        return tuple(AxisRef(axis.name) for axis in self.axes if axis.level == level)

    @cached_property
    def is_nested(self) -> bool:
        """Whether one of several levels has several axes. There are more devices then than a model
        has heads: devices along inner axes may keep the same piece of a dimension with fewer.

            >>> inner = Axis("cube", 4, "inner"), Axis("pe", 8, "inner")
            >>> Mesh("m", (Axis("sip", 2, "outer"), *inner)).is_nested
            True
        """
        return 1 < len(self.levels()) < len(self.axes)

    def all_axes(self) -> tuple[AxisRef, ...]:
        """References to every axis of more than one device, outer to inner."""
        return tuple(AxisRef(axis.name) for axis in self.axes if axis.size > 1)

    # References

    def problem(self, ref: AxisRef) -> str | None:
        """Why the mesh has no such reference, or ``None``."""
        axis = self._by_name.get(ref.name)
        if axis is None:
            return f'unknown axis name: "{ref.name}"'
        if ref.size is not None and axis.size % (ref.pre_size * ref.size):
            return f'sub-axis {ref} does not divide axis "{ref.name}" of size {axis.size}'
        return None

    def ref_size(self, ref: AxisRef) -> int:
        """The number of coordinates along a reference."""
        axis = self._by_name.get(ref.name)
        if axis is not None:
            if ref.size is None:
                return axis.size
            if axis.size % (ref.pre_size * ref.size) == 0:
                return ref.size
        raise MeshError(self.problem(ref) or str(ref))

    def refs_size(self, refs: Iterable[AxisRef]) -> int:
        return math.prod(self.ref_size(ref) for ref in refs)

    def ref_stride(self, ref: AxisRef) -> int:
        """How far apart on the axis two neighbours along the reference are."""
        return self.axis(ref.name).size // (ref.pre_size * self.ref_size(ref))

    def ref_coordinate(self, ref: AxisRef, coords: Mapping[str, int]) -> int:
        """The coordinate of a device along a reference."""
        return coords[ref.name] // self.ref_stride(ref) % self.ref_size(ref)

    def rank(self, refs: Sequence[AxisRef], coords: Mapping[str, int]) -> int:
        """The rank of a device along an axis list, the first reference being the major one."""
        rank = 0
        for ref in refs:
            rank = rank * self.ref_size(ref) + self.ref_coordinate(ref, coords)
        return rank

    def canonical(self, refs: Iterable[AxisRef]) -> tuple[AxisRef, ...]:
        """Consecutive parts of an axis merged, a part that is all of its axis written as the
        axis, and parts of size 1 dropped."""
        merged: list[AxisRef] = []
        for ref in refs:
            size = self.ref_size(ref)
            if size == 1:
                continue
            part = AxisRef(ref.name, ref.pre_size, size)
            if merged:
                last = merged[-1]
                last_size = last.size or 1
                if last.name == part.name and last.pre_size * last_size == part.pre_size:
                    merged[-1] = AxisRef(part.name, last.pre_size, last_size * size)
                    continue
            merged.append(part)
        return tuple(
            AxisRef(ref.name) if ref.size == self.axis(ref.name).size else ref for ref in merged
        )

    def overlap(self, left: AxisRef, right: AxisRef) -> bool:
        """Whether two references share a factor of an axis."""
        if left.name != right.name:
            return False
        left_end = left.pre_size * self.ref_size(left)
        right_end = right.pre_size * self.ref_size(right)
        return left.pre_size < right_end and right.pre_size < left_end

    def common_prefix(
        self, left: Sequence[AxisRef], right: Sequence[AxisRef]
    ) -> tuple[tuple[AxisRef, ...], tuple[AxisRef, ...], tuple[AxisRef, ...]]:
        """Splits two axis lists into their longest common prefix and the two rests. Sub-axes are
        split where that makes the prefix longer.

            >>> mesh = Mesh("m", (Axis("x", 8),))
            >>> mesh.common_prefix((AxisRef("x"),), (AxisRef("x", 1, 2),))
            ((AxisRef(name='x', pre_size=1, size=2),), (AxisRef(name='x', pre_size=2, size=4),), ())
        """
        rest_left, rest_right = list(left), list(right)
        prefix: list[AxisRef] = []
        while rest_left and rest_right:
            a, b = rest_left[0], rest_right[0]
            size_a, size_b = self.ref_size(a), self.ref_size(b)
            if a.name != b.name or a.pre_size != b.pre_size:
                break
            shared = min(size_a, size_b)
            if size_a % shared or size_b % shared:
                break
            prefix.append(AxisRef(a.name, a.pre_size, shared))
            for rest, ref, size in ((rest_left, a, size_a), (rest_right, b, size_b)):
                rest.pop(0)
                if size > shared:
                    rest.insert(0, AxisRef(ref.name, ref.pre_size * shared, size // shared))
        return self.canonical(prefix), self.canonical(rest_left), self.canonical(rest_right)

    def complement(self, refs: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
        """The parts of the mesh that no reference covers, outer to inner."""
        rest: list[AxisRef] = []
        for axis in self.axes:
            covered = sorted(
                (ref.pre_size, ref.pre_size * self.ref_size(ref))
                for ref in refs
                if ref.name == axis.name
            )
            position = 1
            for start, end in [*covered, (axis.size, axis.size)]:
                if start > position:
                    rest.append(AxisRef(axis.name, position, start // position))
                position = max(position, end)
        return self.canonical(rest)

    def leading_factors(
        self, refs: Sequence[AxisRef], count: int
    ) -> tuple[tuple[AxisRef, ...], tuple[AxisRef, ...]]:
        """Splits an axis list into a part whose size divides ``count``, taken from the outer
        references first and as large as possible, and the rest; both in the order of ``refs``.

            >>> mesh = Mesh("m", (Axis("gpu", 4), Axis("xcd", 8)))
            >>> used, rest = mesh.leading_factors(mesh.all_axes(), 8)
            >>> axes_text(used), axes_text(rest)
            ('"gpu", "xcd":(1)2', '"xcd":(2)4')
        """
        used: list[AxisRef] = []
        rest: list[AxisRef] = []
        for ref in refs:
            size = self.ref_size(ref)
            factor = math.gcd(size, count)
            count //= factor
            used.append(AxisRef(ref.name, ref.pre_size, factor))
            rest.append(AxisRef(ref.name, ref.pre_size * factor, size // factor))
        return self.canonical(used), self.canonical(rest)

    def trailing_factors(
        self, refs: Sequence[AxisRef], count: int
    ) -> tuple[tuple[AxisRef, ...], tuple[AxisRef, ...]]:
        """As ``leading_factors``, taken from the inner references and their minor parts first."""
        used: list[AxisRef] = []
        rest: list[AxisRef] = []
        for ref in reversed(refs):
            size = self.ref_size(ref)
            factor = math.gcd(size, count)
            count //= factor
            major = size // factor
            used.append(AxisRef(ref.name, ref.pre_size * major, factor))
            rest.append(AxisRef(ref.name, ref.pre_size, major))
        return self.canonical(reversed(used)), self.canonical(reversed(rest))

    # Devices

    def devices(self) -> Iterator[dict[str, int]]:
        """The coordinates of every device, in the order of device ids."""
        names = [axis.name for axis in self.axes]
        for coords in itertools.product(*(range(size) for size in self.shape)):
            yield dict(zip(names, coords, strict=True))

    def device_id(self, coords: Mapping[str, int]) -> int:
        device = 0
        for axis in self.axes:
            device = device * axis.size + coords[axis.name]
        return device

    def coordinates(self, device: int) -> dict[str, int]:
        coords: dict[str, int] = {}
        for axis in reversed(self.axes):
            device, coords[axis.name] = divmod(device, axis.size)
        return coords

    def groups(self, refs: Sequence[AxisRef]) -> list[tuple[int, ...]]:
        """The groups of devices that differ along ``refs`` alone: ids in the order of the axis
        list, groups in the order of their first device."""
        return list(_groups(self, tuple(refs)))

    def device_ranks(self, refs: Sequence[AxisRef]) -> tuple[int, ...]:
        """The rank of every device along an axis list."""
        return _device_ranks(self, tuple(refs))

    # Links

    def link_classes(self, refs: Sequence[AxisRef]) -> tuple[str, ...]:
        """The link classes that a group along ``refs`` communicates over, outer to inner. A part
        of an axis crosses the classes of the parts it overlaps."""
        classes: list[str] = []
        for axis in self.axes:
            own = [ref for ref in refs if ref.name == axis.name and self.ref_size(ref) > 1]
            if not own:
                continue
            if not axis.parts:
                classes.append(axis.link_class)
                continue
            pre_size = 1
            for part in axis.parts:
                whole = AxisRef(axis.name, pre_size, part.size)
                if part.size > 1 and any(self.overlap(whole, ref) for ref in own):
                    classes.append(part.link_class)
                pre_size *= part.size
        return tuple(dict.fromkeys(classes))

    def link_class(self, refs: Sequence[AxisRef]) -> str | None:
        """The outermost, and so the slowest, link class that a group crosses; ``None`` for a
        group of one device."""
        classes = self.link_classes(refs)
        return classes[0] if classes else None

    def pair_link_class(self, source: int, target: int) -> str | None:
        """The link class between two devices: that of the outermost axis they differ on."""
        a, b = self.coordinates(source), self.coordinates(target)
        for axis in self.axes:
            if a[axis.name] == b[axis.name]:
                continue
            stride = axis.size
            for part in axis.parts:
                stride //= part.size
                if a[axis.name] // stride != b[axis.name] // stride:
                    return part.link_class
            return axis.link_class
        return None


@lru_cache(maxsize=512)
def _device_ranks(mesh: Mesh, refs: tuple[AxisRef, ...]) -> tuple[int, ...]:
    return tuple(mesh.rank(refs, coords) for coords in mesh.devices())


@lru_cache(maxsize=512)
def _groups(mesh: Mesh, refs: tuple[AxisRef, ...]) -> tuple[tuple[int, ...], ...]:
    members: dict[int, list[tuple[int, int]]] = {}
    others = mesh.device_ranks(mesh.complement(refs))
    for device, (other, own) in enumerate(zip(others, mesh.device_ranks(refs), strict=True)):
        members.setdefault(other, []).append((own, device))
    groups = [tuple(device for _, device in sorted(group)) for group in members.values()]
    return tuple(sorted(groups, key=min))
