"""To be told when a module is imported, without importing it: a cell may set up its environment first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import util
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, tell: Callable[[], None]) -> Callable[[], None]:
    """Call ``tell`` now if the module is there, else right after its import. Returns what undoes that."""
    if name in sys.modules:
        tell()
        return lambda: None
    finder = _Finder(name, tell)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(MetaPathFinder):
    def __init__(self, name: str, tell: Callable[[], None]) -> None:
        self.name = name
        self.tell = tell
        self.asking = False

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name or self.asking:
            return None
        self.asking = True  # the other finders
        try:
            spec = util.find_spec(fullname)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec, self._tell_once)
        return spec

    def _tell_once(self) -> None:
        if self in sys.meta_path:  # else nobody wants to know any more
            self.leave()
            self.tell()


class _Telling(Loader):
    """Loads as the module's own loader, which the module then has again."""

    def __init__(self, spec: ModuleSpec, tell: Callable[[], None]) -> None:
        self.spec = spec
        self.own: Any = spec.loader
        self.tell = tell

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.own.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self.spec.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        self.tell()
