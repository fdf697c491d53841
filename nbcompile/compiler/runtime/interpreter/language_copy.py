"""A second instance of Triton's language, for interpretation only.

Triton's interpreter works by patching ``triton.language`` in place, which breaks whatever compiles
meanwhile or afterwards, and needs ``TRITON_INTERPRET`` set before the first import. So the interpreter
gets modules of its own: the language, the ``jit`` decorator, the interpreter and their settings are
executed once more under a private ``__import__``, 15 ms a process. The patches stay in the copy, for good.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from nbcompile.compiler.runtime.gpu.tools import triton_module

_COPIED = ("triton.language", "triton.knobs", "triton.runtime.jit", "triton.runtime.interpreter")
_PARENTS = ("triton", "triton.runtime")  # shared, but for the copied modules that they hold


class TritonCopy:
    """The copy. ``module(name)`` is its module of that name; code run with ``builtins`` as its
    ``__builtins__`` imports from it."""

    def __init__(self) -> None:
        triton_module()
        self._modules: dict[str, ModuleType] = {}
        self._lock = threading.RLock()
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import}
        knobs = self.module("triton.knobs")
        knobs.__dict__["propagate_env"] = False  # else the next line would set TRITON_INTERPRET for all
        knobs.__dict__["runtime"].interpret = True

    def module(self, name: str) -> ModuleType:
        """The copy's module ``name``, loaded if need be. ModuleNotFoundError if Triton has none."""
        with self._lock:
            return self._load(name)

    def run(self, name: str) -> ModuleType:
        """A module outside Triton, executed anew against the copy."""
        with self._lock:
            return self._execute(name)

    def provide(self, name: str, value: Any) -> None:
        """Let ``value`` be what importing ``name`` gives in the copy."""
        with self._lock:
            parent, _, leaf = name.rpartition(".")
            setattr(self._load(parent), leaf, value)
            self._modules[name] = value

    def _import(
        self,
        name: str,
        scope: Mapping[str, Any] | None = None,
        names: Mapping[str, Any] | None = None,
        wanted: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        full = (
            importlib.util.resolve_name("." * level + name, (scope or {}).get("__package__"))
            if level
            else name
        )
        if full != "triton" and not full.startswith("triton."):
            return builtins.__import__(name, scope, names, wanted or (), level)
        module = self.module(full)
        if not wanted:
            return self._modules["triton"]
        for item in wanted:
            if item != "*" and not hasattr(module, item) and hasattr(module, "__path__"):
                self.module(f"{full}.{item}")
        return module

    def _load(self, name: str) -> ModuleType:
        parent = name.rpartition(".")[0]
        if parent:
            self._load(parent)
        if name in self._modules:
            return self._modules[name]
        if any(name == item or name.startswith(f"{item}.") for item in _COPIED):
            return self._execute(name)
        module = importlib.import_module(name)
        if name in _PARENTS:
            shared, module = module, ModuleType(name)
            held = {item.rpartition(".")[2] for item in (*_COPIED, *_PARENTS) if item.startswith(f"{name}.")}
            module.__dict__.update({key: value for key, value in vars(shared).items() if key not in held})
        self._place(name, module)
        return module

    def _execute(self, name: str) -> ModuleType:
        importlib.import_module(name)  # dataclasses look up their module where every module is
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec is not None else None
        if spec is None or loader is None:
            raise ModuleNotFoundError(name)
        module = ModuleType(name)
        inside = spec.submodule_search_locations
        module.__dict__.update(
            __spec__=spec,
            __file__=spec.origin,
            __package__=name if inside is not None else name.rpartition(".")[0],
            __builtins__=self.builtins,
        )
        if inside is not None:
            module.__path__ = list(inside)
        self._place(name, module)  # first, for modules that import each other
        # Of its source: the loader may be one that makes other code of it (pytest's, for assertions).
        source = importlib.util.decode_source(loader.get_data(spec.origin))
        exec(compile(source, str(spec.origin), "exec"), module.__dict__)
        return module

    def _place(self, name: str, module: ModuleType) -> None:
        self._modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent in self._modules:
            setattr(self._modules[parent], leaf, module)
