"""The doctor's report: the answer first, what pays with what to write, everything escaped."""

from __future__ import annotations

from nbcompile.record.advice.doctor import DoctorReport, DoctorRow, NotTried

HOSTILE = "<script>alert(1)</script>"


def row(name: str, status: str, effect: str = "same", **more: object) -> DoctorRow:
    return DoctorRow(name, effect, status, **more)


def test_the_best_is_the_title_and_each_kind_has_its_table() -> None:
    report = DoctorReport(
        "f", "nbcompile", 2e-3,
        rows=(
            row("inductor", "pays", speedup=2.0, low=1.9, high=2.1, seconds=1e-3, option="--backend inductor",
                verified=True),
            row("bfloat16", "pays", "precision", speedup=3.0, low=2.9, high=3.1, error=2e-3, eager_error=1e-7,
                diff=("+ x = x.to(torch.bfloat16)",)),
            row("openvino", "differs", reason="output: error 1"),
            row("xla", "crashed", reason="killed by SIGSEGV"),
        ),
        left=(NotTried("tvm", "no time"),), why="66% is library calls", seconds=30.0, budget=60.0,
    )  # fmt: skip
    text = str(report)
    assert text.startswith(
        "f, now nbcompile (2 ms a call): inductor makes it 2.0× as fast (measured again at"
    )
    for part in (
        "--backend inductor",
        "1.9 to 2.1",
        "2.0e-03 (1.0e-07)",
        "+ x = x.to(torch.bfloat16)",
        "wrong numbers",
        "killed by SIGSEGV",
        "no time",
        "66% is library calls.",
        "30 s of 60 s",
    ):
        assert part in text  # fmt: skip
    assert report.best is report.rows[0] and report.less_precise == (report.rows[1],)
    assert "2.00×" in repr(report)


def test_what_was_measured_once_is_not_recommended() -> None:
    """It said "eager makes it 1.8× as fast" of one short measurement, above its row's own "measured once"."""
    once = row("eager", "pays", speedup=1.8, low=1.7, high=1.9, seconds=1e-3, present_seconds=1.8e-3)
    report = DoctorReport("f", "nbcompile", 2e-3, rows=(once,))
    told = " ".join(str(report).split())
    assert report.best is None and "makes it" not in told
    assert told.startswith(
        "f, now nbcompile (2 ms a call): nothing to recommend, as nothing that pays was measured again; "
        "eager, measured once, was 1.8× as fast What pays"
    )
    again = row("xla", "pays", speedup=1.2, low=1.1, high=1.3, verified=True)
    report = DoctorReport("f", "nbcompile", 2e-3, rows=(once, again))
    assert report.best is again and "xla makes it 1.2× as fast (measured again" in str(report)


def test_a_time_that_is_of_another_measurement_has_its_own_beside_it() -> None:
    once = row("eager", "pays", speedup=1.8, low=1.7, high=1.9, seconds=1e-3, present_seconds=1.8e-3)
    again = row(
        "xla", "pays", speedup=2.0, low=1.9, high=2.1, seconds=1e-3, present_seconds=2e-3, verified=True
    )
    told = str(DoctorReport("f", "nbcompile", 2e-3, rows=(again, once))).splitlines()
    assert "1 ms (now 1.8 ms)" in next(line for line in told if line.strip().startswith("eager"))
    assert "now" not in next(line for line in told if line.strip().startswith("xla "))


def test_nothing_pays_is_an_answer() -> None:
    report = DoctorReport("f", "nbcompile", rows=(row("eager", "slower", speedup=0.5, low=0.4, high=0.6),))
    assert "nothing pays here" in str(report) and report.best is None
    more = row("batch 2048", "pays", effect="work", speedup=1.2, low=1.1, high=1.3)
    assert "nothing pays here without more at a time" in str(DoctorReport("f", "nbcompile", rows=(more,)))


def test_what_was_not_tried_is_not_said_not_to_pay() -> None:
    """Interrupted before the first trial, it said "nothing pays here" of (– a call)."""
    told = str(DoctorReport("f", "nbcompile", interrupted=True)).splitlines()[0]
    assert told == "f, now nbcompile: nothing was tried; stopped before the end"
    some = (row("eager", "slower", speedup=0.5, low=0.4, high=0.6),)
    told = str(DoctorReport("f", "nbcompile", 1e-3, rows=some, interrupted=True)).splitlines()[0]
    assert told == "f, now nbcompile (1 ms a call): nothing pays of what was tried; stopped before the end"


def test_hostile_names_stay_text() -> None:
    report = DoctorReport(
        HOSTILE, HOSTILE, rows=(row(HOSTILE, "failed", reason=HOSTILE), row(HOSTILE, "pays", option=HOSTILE)),
        left=(NotTried(HOSTILE, HOSTILE),), why=HOSTILE,
    )  # fmt: skip
    assert "<script" not in report._repr_html_()
