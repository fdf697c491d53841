"""The operations that programs are made of, by family. A module here registers its own at import."""

from __future__ import annotations

import functools
import importlib
import pkgutil

FAMILIES = {
    "pointwise": 5.0,
    "reductions": 3.0,
    "views": 4.0,
    "inplace": 3.5,
    "indexing": 2.5,
    "joining": 2.0,
    "nn": 2.5,
    "losses": 0.6,
    "matmul": 1.5,
    "sorting": 1.0,
    "random": 0.5,
    "control": 0.6,
    "data": 0.5,
}


@functools.cache
def load() -> None:
    """Register all of them."""
    from tests.fuzz.draw import FAMILY_WEIGHTS

    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    FAMILY_WEIGHTS.update(FAMILIES)
