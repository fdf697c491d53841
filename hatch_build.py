"""What a wheel and an sdist carry beside the package's own files: the explorer, built with Node if it is not.

A tree that has it built, such as an unpacked sdist, needs neither Node nor the packages named here. A tree
with an older build keeps it: `make wheel` brings it up to date first. `HATCH_BUILD_NO_HOOKS=1` leaves all of
this out, as the Makefile does, which builds and links the explorer by itself.

README.md is published with links that lead somewhere (scripts/badges.py).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SHARED = "share/jupyter/labextensions/nbcompile"


class ExplorerHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        front_end = self._front_end()
        return [] if front_end.built() else list(front_end.requires())

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        front_end = self._front_end()
        if not front_end.built():
            front_end.build()
        # git ignores both.
        build_data["artifacts"] += ["/nbcompile/view/static/*", "/labextension/dist/**"]
        if self.target_name == "wheel":
            build_data["shared_data"]["labextension/dist"] = SHARED

    def _front_end(self) -> ModuleType:
        return _script(self.root, "frontend")


class ReadmeHook(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Repository")
        published = _script(self.root, "badges").published(text, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": published}


def _script(root: str, name: str) -> ModuleType:
    """scripts/NAME.py, which imports nothing but the standard library."""
    spec = importlib.util.spec_from_file_location(name, Path(root) / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
