"""Names of files in OPS: `linear1.csv`, or `{GPU}_{operator}_{precision}_{parts}_{part}.csv` as the sampler of arXiv
2509.22832 writes them, with or without what stands around the operator. Names of files of collectives have the same
form, and may have a GPU without a precision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.predict.operators.operators import OPERATORS

SIXTEEN_BITS = ("fp16", "bf16")
_PRECISION = "(?P<precision>fp16|bf16|fp32|fp8)"
_PUBLISHED = re.compile(rf"(?P<named>.+?)_{_PRECISION}(?:_.*)?")
_WITH_GPU = re.compile(rf"(?P<gpu>.+?)_(?P<operator>{'|'.join(OPERATORS)})")
_COLLECTIVE = re.compile(
    r"(?:(?P<gpu>.+)_)?(?P<operator>(?:all_?reduce|all_?gather|reduce_?scatter|p2p)(?:_large)?)"
    rf"(?:_(?:.*?_)??{_PRECISION})?(?:_.*)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """`gpu`, `precision`: empty where the name does not say them."""

    path: Path
    operator: str
    gpu: str = ""
    precision: str = ""

    @classmethod
    def of(cls, path: Path) -> FileName:
        """Only a name with a precision has a GPU: `_log_softmax` is an operator."""
        if (published := _PUBLISHED.fullmatch(path.stem)) is None:
            return cls(path=path, operator=path.stem)
        named, precision = published["named"], published["precision"]
        if (full := _WITH_GPU.fullmatch(named)) is None:
            return cls(path=path, operator=named, precision=precision)
        return cls(path=path, operator=full["operator"], gpu=full["gpu"], precision=precision)

    @classmethod
    def of_collective(cls, path: Path) -> FileName | None:
        """None where no collective that is known has this name."""
        match = _COLLECTIVE.fullmatch(path.stem)
        return match and cls(path=path, **{part: text or "" for part, text in match.groupdict().items()})

    @property
    def collective(self) -> str:
        """`allreduce` of `all_reduce_large`."""
        return self.operator.removesuffix("_large").replace("_", "")

    def check_precision(self) -> None:
        """UsageError where its values are not of 16 bits, which the work of an operator is counted with."""
        if self.precision and self.precision not in SIXTEEN_BITS:
            raise UsageError(
                f"{self.path} has times in {self.precision}, but operators are predicted in 16 bits",
                hint=f"give times of {' or '.join(SIXTEEN_BITS)}, or leave the file out",
            )

    def check_with(self, other: FileName) -> None:
        """UsageError where two operators are of different GPUs or precisions. What precedes the name of a collective
        may be no GPU, and its times are not used beside those of operators."""
        if self.operator not in OPERATORS or other.operator not in OPERATORS:
            return
        for mine, theirs in ((self.gpu, other.gpu), (self.precision, other.precision)):
            if mine and theirs and mine != theirs:
                raise UsageError(
                    f"{self.path} has times of {mine}, but {other.path} has times of {theirs}",
                    hint="put them into two folders",
                )
