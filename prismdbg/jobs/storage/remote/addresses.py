"""What a text is the address of. What knows object stores and registries is imported for an address only: it was most
of what `prismdbg --help` waited for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prismdbg.jobs.storage.remote.object_store import Address

_MARK = "://"  # of every address; a path may have it, too

Say = Callable[[str], None]


def fetching(text: str) -> Callable[[Say], Path] | None:
    """What fetches this address and gives the path of the copy; None where it is a path."""
    if _MARK not in text:
        return None
    from prismdbg.jobs.storage.remote import image_registry, object_store

    if text.startswith(image_registry.SCHEME):
        return partial(image_registry.fetch, image_registry.ImageAddress.of(text))
    address = object_store.Address.of(text)
    return None if address is None else partial(object_store.fetch, address)


def in_a_store(text: str) -> Address | None:
    """None where it is a path."""
    if _MARK not in text:
        return None
    from prismdbg.jobs.storage.remote.object_store import Address

    return Address.of(text)
