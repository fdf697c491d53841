"""The looks that a view is tested in: ``theme`` and ``width`` are what the ``page`` fixture is made with."""

from __future__ import annotations

import pytest

both_themes = pytest.mark.parametrize("theme", ["light", "dark"])
wide_and_narrow = pytest.mark.parametrize("width", [1180, 420])
