"""What a browser's page complains of while a test runs."""

from __future__ import annotations

import re

from playwright.sync_api import ConsoleMessage, Page


class Complaints:
    """Errors on the console and uncaught exceptions, but for those that a test expects."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._expected: list[str] = []

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.seen.append(f"uncaught: {error.stack or error}"))
        page.on("crash", lambda _: self.seen.append("the page crashed"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.seen.append(f"console: {message.text} ({message.location.get('url', '')})")

    def expect(self, pattern: str) -> None:
        """Let through what matches this regular expression."""
        self._expected.append(pattern)

    def unexpected(self) -> list[str]:
        return [
            text for text in self.seen if not any(re.search(each, text, re.DOTALL) for each in self._expected)
        ]
