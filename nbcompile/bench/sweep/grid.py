"""The points of a sweep: every combination of what a grid names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.backends import registry
from nbcompile.errors import OptionError
from nbcompile.settings import CompileSettings

KEYS = ("backend", "mode", "dtype", "dynamic", "options", "device", "threads")
"""Keys of a grid that say how to compile; any other is an argument of ``make_inputs``."""
_PLAIN = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Point:
    """One combination: ``values`` are the grid's keys, in its order, each with one value."""

    values: tuple[tuple[str, Any], ...]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, ``default`` if the grid does not have it."""
        return dict(self.values).get(key, default)

    @property
    def backend(self) -> str:
        return str(self.get("backend", "nbcompile"))

    @property
    def mode(self) -> str:
        return str(self.get("mode") or "default")

    @property
    def arguments(self) -> dict[str, Any]:
        """What ``make_inputs`` is called with."""
        return {key: value for key, value in self.values if key not in KEYS}

    @property
    def setting(self) -> tuple[tuple[str, Any], ...]:
        """What this is a measurement of, whoever compiles it: type, device, threads and sizes."""
        ours = ("backend", "mode", "options", "dynamic")
        return tuple(item for item in self.values if item[0] not in ours)

    @property
    def compiler(self) -> str:
        """Backend, mode, options and ``dynamic``, where they are not the default ones."""
        parts = [self.backend]
        if self.mode != "default":
            parts.append(self.mode)
        if self.get("options") not in (None, "default"):
            parts.append(f"[{self.get('options')}]")
        if self.get("dynamic") is not None:
            parts.append(f"dynamic={self.get('dynamic')}")
        return " ".join(parts)

    def __str__(self) -> str:
        rest = (str(v) if k in ("dtype", "device") else f"{k}={v}" for k, v in self.setting)
        return " ".join((self.compiler, *rest))


@dataclass(frozen=True)
class Grid:
    """Axes, each a key with its values, and the options that each name of the axis ``options`` stands for."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    variants: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Grid:
        """A mapping of keys to sequences of values, or to one value. ``options`` are ``{name: options}``, or
        a sequence of options. OptionError for what cannot be meant."""
        axes: dict[str, tuple[Any, ...]] = {}
        variants: dict[str, Mapping[str, Any]] = {}
        for key, values in given.items():
            if not isinstance(key, str) or not key:
                raise OptionError(f"{key!r} cannot be a key of a grid.", advice="Keys are names.")
            if key == "options":
                variants = _variants(values)
                axes[key] = tuple(variants)
            else:
                axes[key] = tuple(_value(key, value) for value in _sequence(values))
            if not axes[key]:
                raise OptionError(f"{key!r} has no values.", advice="Leave it out, or give it one.")
            if len(set(map(repr, axes[key]))) < len(axes[key]):
                raise OptionError(f"{key!r} has a value twice.")
        axes.setdefault("backend", ("nbcompile",))
        return cls(tuple(axes.items()), variants)

    def points(self) -> tuple[Point, ...]:
        """Every combination; the compilers of one setting stand next to each other."""
        ours = [axis for axis in self.axes if axis[0] in ("backend", "mode", "options", "dynamic")]
        rest = [axis for axis in self.axes if axis not in ours]
        order = [key for key, _ in self.axes]
        found = []
        for values in itertools.product(*(values for _, values in (*rest, *ours))):
            named = dict(zip((key for key, _ in (*rest, *ours)), values, strict=True))
            found.append(Point(tuple((key, named[key]) for key in order)))
        return tuple(found)

    def settings(self, fullgraph: bool = False) -> dict[Point, CompileSettings]:
        """How each point is compiled, in the order of :meth:`points`."""
        return {
            point: CompileSettings(
                point.backend,
                None if point.mode == "default" else point.mode,
                self.variants.get(point.get("options", ""), {}),
                point.get("dynamic"),
                fullgraph,
            )
            for point in self.points()
        }


def no_sense(point: Point) -> str:
    """Why a point is not run at all: its backend is one of ours and knows no such mode. Else empty."""
    known = registry.backends().get(point.backend)
    if known is not None and point.mode not in known.modes:
        return f"{point.backend} has no mode {point.mode}"
    if point.backend == "eager" and (point.get("options") not in (None, "default") or point.get("dynamic")):
        return "eager compiles nothing: it has no options"
    return ""


def _sequence(values: Any) -> Iterator[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence | range | set | frozenset):
        return iter((values,))
    return iter(values)


def _value(key: str, value: Any) -> Any:
    if key == "dtype":
        name = str(value).removeprefix("torch.")
        if not isinstance(getattr(torch, name, None), torch.dtype):
            raise OptionError(f"dtype {name!r} is unknown.", advice="Write float32, bfloat16, ...")
        return name
    if key == "device":
        return str(value)
    if key == "mode":
        return "default" if value is None else str(value)
    if key == "backend" and not isinstance(value, str):
        raise OptionError(
            f"backend {value!r} is no name.", advice="Name a backend, or a function by its dotted name."
        )
    if isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value):
        return value
    if not isinstance(value, _PLAIN):
        raise OptionError(
            f"{key}={value!r} cannot be a value of a grid.",
            advice="Give numbers, strings, or tuples of these, and make tensors of them in make_inputs.",
        )
    return value


def _variants(given: Any) -> dict[str, Mapping[str, Any]]:
    if isinstance(given, Mapping):
        named = dict(given)
    else:
        named = {_named(options): options for options in _sequence(given)}
        if len(named) < len(tuple(_sequence(given))):
            raise OptionError("the same options are given twice.")
    for name, options in named.items():
        if not isinstance(options, Mapping):
            raise OptionError(
                f"options {name!r} are {type(options).__name__}, not a mapping.",
                advice="Write options={name: {option: value}}, or a list of mappings.",
            )
    return {str(name): dict(options) for name, options in named.items()}


def _named(options: Any) -> str:
    if not isinstance(options, Mapping):
        raise OptionError(f"options {options!r} are no mapping.")
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "default"
