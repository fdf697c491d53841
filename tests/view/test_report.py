"""The one writer of tables: figures to the right, long texts below, nothing of a value becomes markup."""

from __future__ import annotations

import re

import pytest

from nbcompile.view.reports.report import Section, Styled, to_html, to_text
from tests.view.fixtures import HOSTILE
from tests.view.test_views import ATTRIBUTES, TAGS, read

TABLE = Section(
    "Times",
    ("who", "a call", "", "why"),
    (("eager", "2 ms", "", ""), (Styled("ours", "strong", "the tip"), "10.5 ms", "", "x" * 30)),
    right=(1,),
    more=3,
)


def test_figures_stand_to_the_right_and_empty_columns_are_left_out() -> None:
    lines = to_text("A title", [TABLE]).splitlines()
    assert lines[:3] == ["A title", "", "Times"]
    assert lines[3:] == [
        "  who     a call  why",
        "  eager     2 ms",
        f"  ours   10.5 ms  {'x' * 30}",
        "  … 3 more",
    ]


def test_a_text_with_no_room_beside_the_others_goes_below_them() -> None:
    row = ("a" * 50, "b" * 50, "words " * 12)
    lines = to_text("t", [Section(rows=(row,))], 110).splitlines()
    assert lines[2].split() == list(row[:2]) and lines[3].split() == row[2].split()
    assert all(len(line) <= 110 for line in lines)


def test_html_has_styles_tips_and_a_column_a_cell_where_it_is_dense() -> None:
    html = to_html("t", [TABLE])
    assert 'title="the tip"' in html and html.count("<tr") == 3 and html.count("<td") == 2 * 3
    dense = to_html("t", [Section(heads=TABLE.heads, rows=TABLE.rows, right=(1,), dense=True)])
    assert dense.count("<tr") == 2 and dense.count("<td") == 3
    assert re.search(r"<pre [^>]*>   2 ms\n10.5 ms</pre>", dense)


@pytest.mark.parametrize("dense", [False, True])
def test_nothing_that_is_shown_becomes_markup(dense: bool) -> None:
    inner = Section(HOSTILE, listing=HOSTILE)
    rows = ((HOSTILE, Styled(HOSTILE, "no", HOSTILE)),)
    section = Section(HOSTILE, (HOSTILE, ""), rows, HOSTILE, (HOSTILE,), (inner,), folded=True, dense=dense)
    html = to_html(HOSTILE, [section], [HOSTILE])
    reader = read(html)
    assert reader.tags <= TAGS and reader.attributes <= ATTRIBUTES
    assert "alert(1)" in "".join(reader.words)
    text = to_text(HOSTILE + "\x1b[2J", [section])
    assert all(character.isprintable() or character == "\n" for character in text)
