"""`make audit`: what it makes of each tool's answer, that silence is not taken for clean, and our code."""

from __future__ import annotations

import dataclasses

import pytest

from tests.from_scripts import SCRIPTS, load

audit = load("audit")
ROWS = audit.accepted((SCRIPTS / "audit_accepted.toml").read_text(encoding="utf-8"))
FINDING = audit.Finding("bandit", "B101", "nbcompile/a.py:3", "an assert")
ROW = audit.Accepted("bandit", "B101", ("nbcompile/*",), "a reason that is long enough")


def test_a_finding_needs_a_row_and_a_row_a_finding() -> None:
    assert audit.judged([FINDING], [ROW], ["bandit"]) == []
    (line,) = audit.judged([FINDING], [], ["bandit"])
    assert line == "bandit B101, nbcompile/a.py:3: an assert"
    (line,) = audit.judged([], [ROW], ["bandit"])
    assert "not found there any more" in line
    assert audit.judged([], [ROW], ["pip"]) == [], "bandit was not asked"
    elsewhere = audit.Finding("bandit", "B101", "scripts/a.py:3", "an assert")
    assert len(audit.judged([elsewhere], [ROW], ["bandit"])) == 2


def test_a_row_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="its reason"):
        audit.accepted('[[accepted]]\ntool = "pip"\nid = "x"\nfiles = ["y"]\nwhy = "ok"\n')


def test_the_answers_are_read() -> None:
    bandit = {"errors": [], "results": [
        {"test_id": "B1", "filename": "nbcompile/x.py", "line_number": 7, "issue_text": "exec"}]}  # fmt: skip
    assert audit.of_bandit(bandit) == [audit.Finding("bandit", "B1", "nbcompile/x.py:7", "exec")]
    packages = [
        {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]},
        {"name": "b", "version": "1", "vulns": []},
    ]
    assert audit.of_pip({"dependencies": packages}) == [
        audit.Finding("pip", "PYSEC-1", "a 1", "mended in 2"),
    ]
    npm = {"vulnerabilities": {"p": {"via": ["q"]}, "q": {"via": [{"source": 3, "title": "bad"}]}}}
    assert audit.of_npm(npm) == [audit.Finding("npm", "3", "q", "bad")]


@pytest.mark.parametrize(
    ("read", "report"),
    [
        ("of_pip", {"dependencies": [{"name": "a", "skip_reason": "Dependency not found on PyPI"}]}),
        ("of_npm", {"message": "405 Method Not Allowed", "error": {"summary": ""}}),
        ("of_bandit", {"errors": [{"filename": "x.py"}], "results": []}),
    ],
)
def test_an_answer_that_says_nothing_is_not_a_clean_one(read: str, report: object) -> None:
    """pip-audit says "No known vulnerabilities found" of packages that it could not ask about."""
    with pytest.raises(audit.NotAskedError):
        getattr(audit, read)(report)


@pytest.mark.parametrize(
    ("findings", "status"),
    [([], 0), ([dataclasses.replace(FINDING, id="B000")], 1), (audit.NotAskedError("no network"), 3)],
)
def test_the_exit_status(
    findings: object, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask() -> object:
        if isinstance(findings, Exception):
            raise findings
        return findings

    monkeypatch.setitem(audit.TOOLS, "pip", ask)
    assert audit.main(["--only", "pip"]) == status
    assert ("NOT ASKED" in capsys.readouterr().out) == (status == 3)


def test_security_md_has_the_table() -> None:
    page = (SCRIPTS.parent / "SECURITY.md").read_text(encoding="utf-8")
    assert audit.table(ROWS) in page, "run `python scripts/audit.py --write`"


@pytest.mark.nightly
def test_every_finding_in_our_code_is_explained() -> None:
    assert audit.judged(audit.bandit(), ROWS, ["bandit"]) == []
