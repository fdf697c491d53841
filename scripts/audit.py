"""Known faults in what we depend on, and doubtful places in our own code: `make audit`.

    python scripts/audit.py [--only bandit,pip,npm] [--write]

``bandit`` reads nbcompile/; ``pip-audit`` asks PyPI about the packages of this environment, ``npm audit``
npm's registry about those of package-lock.json. A finding is mended, or explained in
``audit_accepted.toml``, which SECURITY.md shows (``--write`` puts it there). Exit status: 1 for a finding
without an explanation or an explanation without a finding, 3 if one of them could not be asked: that is not
the same as clean.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import frontend
from readme_table import insert_between

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = ROOT / "scripts" / "audit_accepted.toml"
BEGIN, END = "<!-- accepted findings: begin -->", "<!-- accepted findings: end -->"
UNEXPLAINED, NOT_ASKED = 1, 3


class NotAskedError(Exception):
    """The tool is not here, or what it asks does not answer."""


@dataclass(frozen=True)
class Finding:
    tool: str
    id: str
    place: str
    """A file of ours with its line, or a package with its version."""
    what: str

    @property
    def file(self) -> str:
        return self.place.partition(":")[0]


@dataclass(frozen=True)
class Accepted:
    tool: str
    id: str
    files: tuple[str, ...]
    why: str

    def covers(self, finding: Finding) -> bool:
        same = (finding.tool, finding.id) == (self.tool, self.id)
        return same and any(fnmatch.fnmatchcase(finding.file, pattern) for pattern in self.files)


def accepted(text: str) -> list[Accepted]:
    """The rows of audit_accepted.toml. ValueError for one that explains nothing."""
    rows = [
        Accepted(row["tool"], row["id"], tuple(row["files"]), " ".join(row["why"].split()))
        for row in tomllib.loads(text)["accepted"]
    ]
    for row in rows:
        if len(row.why) < 20 or not row.files:
            raise ValueError(f"{row.tool} {row.id}: an accepted finding needs its files and its reason")
    return rows


def judged(findings: Iterable[Finding], rows: Sequence[Accepted], tools: Iterable[str]) -> list[str]:
    """What is to be done, a line each: findings without a row, and rows (of these tools) without one."""
    used: set[Accepted] = set()
    lines = []
    for finding in findings:
        row = next((row for row in rows if row.covers(finding)), None)
        if row is None:
            lines.append(f"{finding.tool} {finding.id}, {finding.place}: {finding.what}")
        else:
            used.add(row)
    asked = set(tools)
    return lines + [
        f"{row.tool} {row.id} is explained for {', '.join(row.files)}, but not found there any more"
        for row in rows
        if row.tool in asked and row not in used
    ]


# -- the three tools ------------------------------------------------------------------------------


def _said(command: Sequence[str], **more: Any) -> tuple[str, str]:
    """What a tool printed, to stdout and to stderr; its status says whether it found something."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    except FileNotFoundError as error:
        raise NotAskedError(f"{command[0]} is not installed") from error
    return run.stdout, run.stderr


def _json(command: Sequence[str], **more: Any) -> Any:
    out, errors = _said(command, **more)
    try:
        return json.loads(out)
    except json.JSONDecodeError as error:
        last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
        raise NotAskedError(f"{' '.join(map(str, command[:4]))}: {last}") from error


def bandit() -> list[Finding]:
    """Of our own Python."""
    command = [sys.executable, "-m", "bandit", "-r", "nbcompile", "-f", "json", "-q"]
    return of_bandit(_json(command, cwd=ROOT))


def of_bandit(report: Mapping[str, Any]) -> list[Finding]:
    if report["errors"]:
        raise NotAskedError(f"bandit could not read {report['errors'][0]['filename']}")
    return [
        Finding("bandit", r["test_id"], f"{r['filename']}:{r['line_number']}", r["issue_text"])
        for r in report["results"]
    ]


def pip() -> list[Finding]:
    """Of the packages in this environment."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--skip-editable",
    ]
    return of_pip(_json(command, cwd=ROOT))


def of_pip(report: Mapping[str, Any]) -> list[Finding]:
    packages = report["dependencies"]
    left_out = [each for each in packages if "skip_reason" in each]
    # pip-audit then says "No known vulnerabilities found", of none that it could ask about.
    if packages and len(left_out) > len(packages) // 2:
        few = f"{len(left_out)} of {len(packages)} packages"
        raise NotAskedError(f"PyPI told nothing about {few}: {left_out[0]['skip_reason']}")
    for each in left_out:
        print(f"  pip: nothing is known of {each['name']}: {each['skip_reason']}")
    return [
        Finding("pip", fault["id"], f"{each['name']} {each['version']}", _fix(fault.get("fix_versions")))
        for each in packages
        for fault in each.get("vulns", ())
    ]


def _fix(versions: Sequence[str] | None) -> str:
    return f"mended in {', '.join(versions)}" if versions else "not mended in any version"


def npm() -> list[Finding]:
    """Of the packages that build the explorer or are bundled with it."""
    return of_npm(_json(["npm", "audit", "--json"], cwd=frontend.FOLDER, env=os.environ))


def of_npm(report: Mapping[str, Any]) -> list[Finding]:
    if "vulnerabilities" not in report:
        raise NotAskedError(f"npm audit: {report.get('message') or report.get('error')}")
    return [
        Finding("npm", str(via["source"]), name, via["title"])
        for name, each in report["vulnerabilities"].items()
        for via in each["via"]
        if isinstance(via, dict)  # else the name of the package that it has the fault from
    ]


TOOLS: dict[str, Callable[[], list[Finding]]] = {"bandit": bandit, "pip": pip, "npm": npm}


def table(rows: Sequence[Accepted]) -> str:
    """Markdown, for SECURITY.md."""
    lines = ["| finding | where | why it stays |", "|---|---|---|"]
    for row in rows:
        where = ", ".join(f"`{pattern}`" for pattern in row.files)
        lines.append(f"| {row.tool} {row.id} | {where} | {row.why} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(TOOLS), help="of bandit, pip and npm, between commas")
    parser.add_argument("--write", action="store_true", help="run nothing; write SECURITY.md's table")
    asked = parser.parse_args(arguments)
    rows = accepted(ACCEPTED.read_text(encoding="utf-8"))
    if asked.write:
        page = ROOT / "SECURITY.md"
        page.write_text(insert_between(page.read_text("utf-8"), table(rows), BEGIN, END), encoding="utf-8")
        return 0
    findings: list[Finding] = []
    answered, silent = [], []
    for name in asked.only.split(","):
        try:
            found = TOOLS[name]()
        except NotAskedError as error:
            silent.append(name)
            print(f"{name}: NOT ASKED, {error}")
            continue
        answered.append(name)
        findings += found
        print(f"{name}: {len(found)} findings")
    lines = judged(findings, rows, answered)
    for line in lines:
        print(f"  {line}")
    print(f"{len(lines)} left unexplained" + (f"; not asked: {', '.join(silent)}" if silent else ""))
    return UNEXPLAINED if lines else NOT_ASKED if silent else 0


if __name__ == "__main__":
    sys.exit(main())
