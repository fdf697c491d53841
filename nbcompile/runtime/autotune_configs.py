"""Candidates of a search: what they are called, which lie beside a good one, and which can run at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from nbcompile.runtime.triton_compile import Built
from nbcompile.runtime.triton_grid import grid_of
from nbcompile.stages import Config, Launch
from nbcompile.targets import Target

MOST_WARPS = 32
_MOST_STAGES = 5


def config_text(config: Config) -> str:
    """``XBLOCK 1024, 4 warps``: the same text for the same config, and another for another."""
    words = [f"{name} {value}" for name, value in sorted(config.constants.items())]
    words.append(f"{config.warps} warp{'s' if config.warps != 1 else ''}")
    if config.stages != 1:
        words.append(f"{config.stages} stages")
    return ", ".join(words)


def free_constants(launch: Launch) -> dict[str, tuple[int, int]]:
    """The constants that a search may change, each with the least and greatest value listed: those in which
    the listed configs differ. What is the same in all of them (a row's whole length, blocks that a
    workspace is laid out by) is part of the kernel."""
    found: dict[str, tuple[int, int]] = {}
    for name in launch.configs[0].constants:
        values = [config.constants[name] for config in launch.configs if name in config.constants]
        if len(values) == len(launch.configs) and len(set(values)) > 1:
            found[name] = min(values), max(values)
    return found


def neighbours(config: Config, launch: Launch, *, pipelined: bool = False) -> list[Config]:
    """Configs one step from ``config``: half or twice the warps, each free constant, or (where a loop is
    ``pipelined``) the stages one more or less.

    A block never grows beyond the greatest listed: where every listed block divides an extent the kernel
    has no mask, and only a divisor of them is sure to divide it too.
    """
    found = []
    lanes = math.prod(value for name, value in config.constants.items() if name.endswith("BLOCK"))
    if config.warps > 1:
        found.append(replace(config, warps=config.warps // 2))
    if config.warps < MOST_WARPS and config.warps * 2 * 32 <= lanes:
        found.append(replace(config, warps=config.warps * 2))
    for name, (least, greatest) in free_constants(launch).items():
        value = config.constants[name]
        for other in (value * 2, value // 2):
            if max(least // 2, 2) <= other <= greatest and greatest % other == 0:
                changed = replace(config, constants={**config.constants, name: other})
                found.append(changed)
                if other < value and config.warps > 1:  # as many elements a thread as before
                    found.append(replace(changed, warps=config.warps // 2))
                if other > value and config.warps < MOST_WARPS:
                    found.append(replace(changed, warps=config.warps * 2))
    if pipelined:
        if config.stages < _MOST_STAGES:
            found.append(replace(config, stages=config.stages + 1))
        if config.stages > 1:
            found.append(replace(config, stages=config.stages - 1))
    return found


def misfit(
    launch: Launch, built: Built, chip: Target, sizes: Mapping[str, int], resident: Callable[[Built], int]
) -> str:
    """Why a compiled candidate cannot run on ``chip``, in a few words; empty if it can. ``resident`` tells
    how many of its programs fit on the chip at once."""
    if chip.shared_bytes and built.shared_bytes > chip.shared_bytes:
        return f"does not fit: {built.shared_bytes} bytes of shared memory"
    if built.warps * chip.warp > 1024:
        return f"does not fit: {built.warps * chip.warp} threads a program"
    if launch.together:
        programs, most = math.prod(grid_of(launch, built.config, sizes)), resident(built)
        if programs > most:
            return f"does not fit: {programs} programs at once, room for {most}"
    return ""


def spills(built: Built) -> str:
    """``spills 128 bytes``, or nothing."""
    return f"spills {built.spill_bytes} bytes" if built.spill_bytes else ""
