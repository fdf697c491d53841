"""Numbers as text."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from nbcompile import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (2_097_152, "2.1 MB"),
        (138_000_000, "138 MB"),
        (4.2e12, "4.2 TB"),
        (999_600, "1 MB"),
    ],
)
def test_bytes(count: float, text: str) -> None:
    assert units.bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0 s"),
        (0.00098, "980 µs"),
        (0.00226, "2.26 ms"),
        (0.19, "0.19 s"),
        (3.3, "3.3 s"),
        (1.5e-9, "1.5 ns"),
        (1e-13, "<1 ns"),
    ],
)
def test_seconds(seconds: float | None, text: str) -> None:
    assert units.seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(2.31, "2.3×"), (0.8, "0.8×"), (12.4, "12×"), (0.012, "0.012×"), (math.inf, "?×")]
)
def test_ratio(ratio: float, text: str) -> None:
    assert units.ratio_text(ratio) == text


def test_shapes_keep_symbolic_sizes() -> None:
    assert units.shape_text("torch.float32", ("s0", 64)) == "f32[s0,64]"
    assert units.shape_text("int64", ()) == "i64[]"
    assert units.shape_text(None, None) == ""


def test_clip_is_bounded_and_on_one_line() -> None:
    assert units.clip("a\n b", 10) == "a b"
    assert len(units.clip("x" * 10_000_000, 30)) == 30
    assert units.clip("x" * 31, 30).endswith("…")


@pytest.mark.parametrize(
    "text", ["", "word", "a few words that do not fit", "x" * 500, "a " + "y" * 45 + " b"]
)
def test_wrap_keeps_the_width(text: str) -> None:
    lines = units.wrap(text, 20, 3)
    assert 1 <= len(lines) <= 3
    assert all(len(line) <= 20 for line in lines)


SHARED = Path(__file__).parents[1] / "labextension" / "tests" / "units.json"
WORDS = {"seconds": units.seconds_text, "speed": units.speed_text, "percent": units.percent_text,
         "bytes": units.bytes_text}  # fmt: skip


@pytest.mark.parametrize("kind", WORDS)
def test_the_explorer_words_numbers_alike(kind: str) -> None:
    rows = json.loads(SHARED.read_text("utf-8"))[kind]
    assert [WORDS[kind](value) for value, _ in rows] == [text for _, text in rows]
