"""What the doctor found, as text and HTML: what pays with what to write, what did not, what was not tried."""

from __future__ import annotations

from nbcompile.record.advice.doctor import DoctorReport, DoctorRow
from nbcompile.units import bytes_text, error_text, seconds_text, significant, speed_text
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled, Value

_HEADS = ("", "faster", "99 %", "a call", "compile", "memory", "write")
_RIGHT = (1, 2, 3, 4, 5)
_STATUS = {
    "level": "no clear difference",
    "slower": "slower",
    "differs": "wrong numbers",
    "failed": "failed",
    "crashed": "its process died",
    "timeout": "took too long",
    "pays": "faster",
}


def to_text(found: DoctorReport) -> str:
    """Tables, the best first."""
    return report.to_text(title(found), _sections(found))


def to_html(found: DoctorReport) -> str:
    """A fragment for a notebook output."""
    return report.to_html(title(found), _sections(found))


def title(found: DoctorReport) -> str:
    """The answer in a sentence, and what it was held against."""
    best = found.best
    each = f" ({seconds_text(found.present_seconds)} a call)" if found.present_seconds is not None else ""
    told = f"{found.function}, now {found.present}{each}: "
    if best is not None:
        told += f"{best.name} makes it {speed_text(best.speedup or 1.0)} as fast (measured again at the end)"
    elif found.pays:
        once = found.pays[0]
        told += f"nothing to recommend, as nothing that pays was measured again; {once.name}, measured once, "
        told += f"was {speed_text(once.speedup or 1.0)} as fast"
    elif found.less_precise:
        told += "nothing pays here without fewer digits"
    elif found.more_work:
        told += "nothing pays here without more at a time"
    elif not found.rows:
        told += "nothing was tried"
    elif found.interrupted:
        told += "nothing pays of what was tried"
    else:
        told += "nothing pays here"
    return told + ("; stopped before the end" if found.interrupted else "")


def _sections(found: DoctorReport) -> list[Section]:
    sections = []
    if found.why:
        sections.append(Section(lines=(f"{found.why}.",)))
    same = tuple(_paying(found, row) for row in found.pays)
    if same:
        sections.append(Section("What pays, with the same numbers", _HEADS, same, right=_RIGHT))
    if found.less_precise:
        precise = tuple((*_paying(found, row)[:6], _errors(row), _write(row)) for row in found.less_precise)
        heads = (*_HEADS[:6], "error (now)", "write")
        sections.append(Section("What pays with fewer digits", heads, precise, right=(*_RIGHT, 6)))
    if found.more_work:
        work = tuple(_paying(found, row) for row in found.more_work)
        sections.append(Section("What pays by the sample", _HEADS, work, right=_RIGHT))
    others = tuple(_other(row) for row in found.rows if row.status != "pays")
    if others:
        told = ("", "faster", "99 %", "", "")
        sections.append(Section("What does not pay here", told, others, right=(1, 2)))
    left = tuple((each.name, each.why) for each in found.left)
    if left:
        sections.append(Section("Not tried", rows=left, folded=True))
    spent = f"{seconds_text(found.seconds)} of {seconds_text(found.budget)} used. "
    spent += (
        "Each ran by turns with the present state, in a process of its own, and was held against float64: "
        "times are of these processes, and 'faster' is the median of its turns."
    )
    sections.append(Section(lines=(Styled(spent, "dim"),)))
    return sections


def _paying(found: DoctorReport, row: DoctorRow) -> tuple[Value, ...]:
    name = row.name if row.verified else f"{row.name} (measured once)"
    return (
        name,
        speed_text(row.speedup or 1.0),
        _interval(row),
        _call(found, row),
        seconds_text(row.compile),
        bytes_text(row.peak_bytes) if row.peak_bytes is not None else "",
        _write(row),
    )


def _call(found: DoctorReport, row: DoctorRow) -> str:
    """Its time, with that of the present state beside it where this was another than the headline's: only
    those two are of one measurement."""
    told, now = seconds_text(row.seconds), seconds_text(row.present_seconds)
    if row.present_seconds is None or now == seconds_text(found.present_seconds):
        return told
    return f"{told} (now {now})"


def _other(row: DoctorRow) -> tuple[Value, ...]:
    error = f"error {_errors(row)}" if row.error is not None else ""
    reason = "; ".join(part for part in (row.reason, error) if part)
    shown = speed_text(row.speedup) if row.speedup is not None else ""
    status = _STATUS[row.status]
    if row.status == "level" and row.low is not None and row.low > 1:
        status = "faster, by too little to matter"
    return row.name, shown, _interval(row), status, reason


def _errors(row: DoctorRow) -> str:
    return f"{error_text(row.error)} ({error_text(row.eager_error)})"


def _interval(row: DoctorRow) -> str:
    if row.low is None or row.high is None:
        return ""
    return f"{significant(row.low)} to {significant(row.high)}"


def _write(row: DoctorRow) -> str:
    return "; ".join(part for part in (row.option, *row.diff) if part)
