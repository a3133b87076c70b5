"""Ranks that can advance together: of one class, alike in whom they communicate with, and a box of the mesh.

Refined until it holds that all ranks of a cohort meet the same cohorts on each channel: then a wait of one rank for
another is a wait of its cohort for the other's, and advancing cohorts deadlocks only where the ranks would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.simulate.graph.channel import Across, Channel
from prismdbg.simulate.graph.mesh import Ints, Mesh

Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]
Use = tuple[Channel, Bools]  # and the positions whose class uses it, in layout


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes in the order in which arrays over the mesh are shaped here: the largest last, for speed."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    axes: tuple[int, ...]  # their places in the mesh

    @classmethod
    def of(cls, mesh: Mesh) -> Layout:
        axes = tuple(sorted(range(len(mesh.sizes)), key=lambda axis: mesh.sizes[axis]))
        return cls(tuple(mesh.names[a] for a in axes), tuple(mesh.sizes[a] for a in axes), axes)

    def axis(self, name: str) -> int:
        return self.names.index(name)

    def shaped(self, by_position: NDArray[Any], mesh: Mesh) -> NDArray[Any]:
        return by_position.reshape(mesh.sizes).transpose(self.axes)

    def ranks(self, mesh: Mesh) -> Ints:
        return mesh.ranks().transpose(self.axes)


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """`coordinates`: along each axis of the layout, ascending."""

    number: int
    rank_class: int
    coordinates: tuple[Ints, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(along) for along in self.coordinates)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def first(self) -> tuple[int, ...]:
        return tuple(int(along[0]) for along in self.coordinates)

    def index(self, shape: Sequence[int]) -> tuple[Ints, ...]:
        """Of an array in layout; an axis of size 1 there holds for all."""
        ones = np.zeros(1, dtype=np.int64)
        chosen = (along if size > 1 else ones for along, size in zip(self.coordinates, shape, strict=True))
        return np.ix_(*chosen)

    def cut(self, array: NDArray[Any]) -> NDArray[Any]:
        """This cohort's part, with size 1 along the axes where nothing differs."""
        part = array[self.index(array.shape)]
        for axis in range(part.ndim):
            head = part.take([0], axis)
            if part.shape[axis] > 1 and np.array_equal(np.broadcast_to(head, part.shape), part):
                part = head
        return part


@dataclass(frozen=True, slots=True, eq=False)
class Cohorts:
    layout: Layout
    members: tuple[Cohort, ...]
    at: Ints  # the cohort's number at each place of the layout


def find(layout: Layout, class_at: Ints, uses: Sequence[Use]) -> Cohorts:
    """`class_at`: in layout."""
    colours, count = _numbered(class_at)
    while True:
        colours, count = _refined(layout, colours, count, uses)
        boxes = _boxes(colours, count)
        if len(boxes) == count:
            break
        for number, box in enumerate(boxes):
            colours[np.ix_(*box)] = number
        count = len(boxes)
    members = tuple(Cohort(i, int(class_at[tuple(along[0] for along in box)]), box) for i, box in enumerate(boxes))
    at = np.empty(layout.sizes, dtype=np.int64)
    for cohort in members:
        at[np.ix_(*cohort.coordinates)] = cohort.number
    return Cohorts(layout, members, at)


def _refined(layout: Layout, colours: Ints, count: int, uses: Sequence[Use]) -> tuple[Ints, int]:
    while True:
        own = _mixed(colours.astype(np.uint64))
        keys = own.copy()
        for number, (channel, users) in enumerate(uses, 1):
            seen = _mixed(_seen(layout, channel, own) + np.uint64(number))
            keys = _mixed(keys + np.where(users, seen, np.uint64(number)))
        finer, found = _numbered(keys)
        if found == count:
            return colours, count
        colours, count = finer, found


def _seen(layout: Layout, channel: Channel, own: Hashes) -> Hashes:
    """A hash of the colours met, for each place: the sum over the members, or the peer's."""
    if not isinstance(channel, Across):
        return np.roll(own, -channel.offset, layout.axis(channel.axis))
    axes = tuple(layout.axis(name) for name in channel.axes)
    if channel.members:
        own = own.take(channel.members, axes[0])
    return np.broadcast_to(np.add.reduce(own, axis=axes, keepdims=True), layout.sizes)


def _mixed(values: Hashes) -> Hashes:
    """splitmix64's last steps."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _numbered(keys: NDArray[Any]) -> tuple[Ints, int]:
    """From 0 in the order of the first place."""
    _, first, inverse = np.unique(keys.ravel(), return_index=True, return_inverse=True)
    numbers = np.empty(len(first), dtype=np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[inverse].reshape(keys.shape), len(first)


def _boxes(colours: Ints, count: int) -> list[tuple[Ints, ...]]:
    """The fewest cuts that are found easily: each colour along the first axis where its sections differ."""
    flat = colours.ravel()
    order = np.argsort(flat, kind="stable")
    ends = np.cumsum(np.bincount(flat, minlength=count))[:-1]
    boxes: list[tuple[Ints, ...]] = []
    for places in np.split(order, ends):
        boxes += _cut_into_boxes(np.stack(np.unravel_index(places, colours.shape)))
    return boxes


def _cut_into_boxes(places: Ints) -> list[tuple[Ints, ...]]:
    """`places`: one row an axis, one column a place."""
    box = tuple(np.unique(along) for along in places)
    if prod(len(along) for along in box) == places.shape[1]:
        return [box]
    for axis in range(len(places)):
        sections: dict[bytes, list[Ints]] = {}
        for at in box[axis]:
            section = places[:, places[axis] == at]
            others = np.delete(section, axis, 0)
            sections.setdefault(np.sort(_flat(others, places)).tobytes(), []).append(section)
        if len(sections) > 1:
            return [b for parts in sections.values() for b in _cut_into_boxes(np.concatenate(parts, axis=1))]
    raise AssertionError("a set whose sections agree along every axis is a box")


def _flat(others: Ints, places: Ints) -> Ints:
    """One number for each column."""
    number = np.zeros(others.shape[1], dtype=np.int64)
    for along in others:
        number = number * (int(places.max()) + 1) + along
    return number
