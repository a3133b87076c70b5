"""Which configurations are tried: all combinations of the given values, on the meshes that fit the job's size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.mesh import Mesh

MOST_CONFIGURATIONS = 4096
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Dimension:
    """A name and the values that it takes."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Dimension:
        """`mbs=1,2,4`."""
        name, _, rest = text.partition("=")
        values = tuple(value.strip() for value in rest.split(","))
        if not _NAME.fullmatch(name) or not all(_VALUE.fullmatch(value) for value in values):
            raise UsageError(f"--try {text!r} is not a name with values", hint="write it as in --try mbs=1,2,4")
        if len(set(values)) != len(values):
            raise UsageError(f"--try {text!r} has a value twice", hint="give each value once")
        return cls(name, values)

    def __str__(self) -> str:
        return f"{self.name}={','.join(self.values)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """`values`: by name, of what is tried. mesh: None where none fits the world; `impossible` says why."""

    values: Mapping[str, str]
    mesh: Mesh | None
    impossible: str = ""

    @property
    def name(self) -> str:
        """`pp=2,mbs=4`: also the name of its folder."""
        return ",".join(f"{name}={value}" for name, value in self.values.items())

    def words(self, command: Sequence[str], **more: str) -> tuple[str, ...]:
        """The command with each `{name}` replaced: what is tried, the sizes of the mesh, and `more`."""
        assert self.mesh is not None
        sizes = {name: str(size) for name, size in zip(self.mesh.names, self.mesh.sizes, strict=True)}
        known = {"world": str(self.mesh.world), **sizes, **self.values, **more}
        return tuple(_PLACEHOLDER.sub(lambda found: known[found[1]], word) for word in command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """`axes`: of the mesh, each with its size, or with "" where what is tried gives it, or the rest of the world."""

    world: int
    axes: Mapping[str, str]
    dimensions: tuple[Dimension, ...]

    @classmethod
    def parse(cls, world: int, mesh: str, tried: Sequence[str]) -> Space:
        """`mesh`: `pp,dp,tp`, each axis with `=SIZE` if its size is the same in all configurations."""
        dimensions = tuple(Dimension.parse(text) for text in tried)
        names = [dimension.name for dimension in dimensions]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"--try {twice} is given twice", hint=f"write --try {twice}=VALUE,VALUE once")
        axes: dict[str, str] = {}
        for part in mesh.split(","):
            name, has_size, size = part.strip().partition("=")
            if not _NAME.fullmatch(name) or name in axes or (has_size and not size.isdecimal()):
                raise UsageError(f"mesh {mesh!r}: {part.strip()!r} is not an axis", hint="write it as in pp,dp,tp=2")
            if has_size and name in names:
                raise UsageError(f"mesh {mesh!r} gives a size of {name}, and --try {name} too", hint=f"write {name}")
            axes[name] = size
        space = cls(world=world, axes=axes, dimensions=dimensions)
        if len(space._left) > 1:
            raise UsageError(
                f"mesh {mesh!r} leaves the sizes of {' and '.join(space._left)} open",
                hint="leave one size open at most; give the others, as in tp=2, or try them: --try tp=1,2",
            )
        if (count := prod(len(dimension.values) for dimension in dimensions)) > MOST_CONFIGURATIONS:
            raise UsageError(f"these are {count:,} configurations", hint=f"try at most {MOST_CONFIGURATIONS:,}")
        return space

    def check(self, command: Sequence[str], *more: str, is_told_mesh: bool = False) -> None:
        """That the command has each name that is tried, and no unknown one. more: what else it may have. is_told_mesh:
        it gets the mesh anyway."""
        tried = {dimension.name for dimension in self.dimensions}
        known = tried | set(self.axes) | {"world"} | set(more)
        found = {name for word in command for name in _PLACEHOLDER.findall(word)}
        if unknown := sorted(found - known):
            names = ", ".join(f"{{{name}}}" for name in sorted(known))
            raise UsageError(
                f"the command contains {{{unknown[0]}}}, but --try has no values for it", hint=f"use one of {names}"
            )
        if unused := sorted(tried - found - (set(self.axes) if is_told_mesh else set())):
            raise UsageError(
                f"--try {unused[0]} does not reach the program: the command has no {{{unused[0]}}}",
                hint=f"write it into the command, as in --{unused[0]} {{{unused[0]}}}",
            )

    @property
    def mesh_text(self) -> str:
        """As `parse` takes it."""
        return ",".join(f"{name}={size}" if size else name for name, size in self.axes.items())

    def check_product(self, text: str) -> None:
        """That these are whole numbers and names of numbers, joined by `*`."""
        numbers = {"world", *self.axes}
        numbers |= {one.name for one in self.dimensions if all(value.isdecimal() for value in one.values)}
        for factor in text.split("*"):
            name = _PLACEHOLDER.fullmatch(factor.strip())
            if not (factor.strip().isdecimal() or (name and name[1] in numbers)):
                names = ", ".join(f"{{{name}}}" for name in sorted(numbers))
                raise UsageError(
                    f"{text!r}: {factor.strip()!r} is not a number", hint=f"write 1024*{{dp}}, with any of {names}"
                )

    def configurations(self) -> Iterator[Configuration]:
        """All of them, in the order in which the values are given, the last name changing fastest."""
        names = [dimension.name for dimension in self.dimensions]
        for values in product(*(dimension.values for dimension in self.dimensions)):
            chosen = dict(zip(names, values, strict=True))
            try:
                yield Configuration(values=chosen, mesh=self._mesh(chosen))
            except UsageError as error:
                yield Configuration(values=chosen, mesh=None, impossible=str(error))

    @property
    def _left(self) -> list[str]:
        """Axes whose size is what the others leave."""
        tried = {dimension.name for dimension in self.dimensions}
        return [name for name, size in self.axes.items() if not size and name not in tried]

    def _mesh(self, chosen: Mapping[str, str]) -> Mesh:
        sizes = {name: size or chosen.get(name, "") for name, size in self.axes.items()}
        for name, size in sizes.items():
            if size and not (size.isdecimal() and int(size) > 0):
                raise UsageError(f"{name}={size} is not a size of a mesh axis")
        for name in self._left:
            rest, more = divmod(self.world, prod(int(size) for size in sizes.values() if size))
            if more or not rest:
                others = " x ".join(f"{axis}={size}" for axis, size in sizes.items() if size)
                raise UsageError(f"{self.world} ranks are not divisible by {others}")
            sizes[name] = str(rest)
        return Mesh.parse(",".join(f"{name}={size}" for name, size in sizes.items()), world=self.world)
