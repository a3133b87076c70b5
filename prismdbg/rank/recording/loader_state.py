"""What a registered data loader says of its place in the data.

One of torchdata's that is asked before its first epoch makes its iterator then, and gives that to the program later: it
draws a seed, starts its workers, and fixes the order. One for validation may begin long after the first snapshots.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

# Where StatefulDataLoader and the Loader of torchdata.nodes keep their iterator, and a state loaded for the next one.
_ITERATORS = (("_iterator", "next_iter_state"), ("_it", "_next_iter_state_dict"))


def state_of(loader: Any) -> Any:
    """Returns `loader.state_dict()`, or None if the loader has no iterator yet: it begins at the beginning."""
    own = getattr(loader, "__dict__", {})
    for iterator, loaded in _ITERATORS:
        if {iterator, loaded} <= own.keys() and own[iterator] is None:
            return None if own[loaded] is None else _with_loaded(loader, iterator, own[loaded])
    return loader.state_dict()


def _with_loaded(loader: Any, iterator: str, loaded: Any) -> Any:
    """A loader's subclass may say more than it."""
    setattr(loader, iterator, SimpleNamespace(state_dict=lambda: loaded))
    try:
        return loader.state_dict()
    finally:
        setattr(loader, iterator, None)
