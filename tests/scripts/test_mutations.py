"""Mutations of the compiler break what is there: each text stands once where it says."""

from __future__ import annotations

import pytest

from scripts.mutations import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda item: item.name)
def test_its_text_is_there(mutation: Mutation) -> None:
    text = (ROOT / "nbcompile" / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.old) == 1 and mutation.new != mutation.old
