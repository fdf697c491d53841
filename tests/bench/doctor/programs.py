"""Programs and functions that other processes are sent, and that misbehave there."""

from __future__ import annotations

import os
import signal
import time

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.conv(x).relu().mean((2, 3)))


def normalised(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1).sum(0)


def wrong(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2.1, -1).sum(0)


def waits(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.004)
    return x * 2


def does_not_wait(x: torch.Tensor) -> torch.Tensor:
    return x + x


def crashing(module, inputs):  # a torch.compile backend
    os.kill(os.getpid(), signal.SIGSEGV)


def hanging(module, inputs):
    time.sleep(600)


def answer(number: int) -> tuple[int, int]:
    return os.getpid(), number


def fails() -> None:
    raise ValueError("no such thing")


def leaves_a_process() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


def hangs() -> None:
    time.sleep(600)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
