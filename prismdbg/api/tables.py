"""Columns as a table of pandas, where that is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prismdbg.errors import FacilityError

if TYPE_CHECKING:
    import pandas


def table(columns: Mapping[str, Sequence[Any] | Any]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise FacilityError("pandas is not installed", hint="pip install pandas, or use columns()") from None
    return pandas.DataFrame(dict(columns))
