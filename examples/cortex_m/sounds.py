"""Sounds of a machine that turns, and what a detector reads of them.

A sound has the harmonics of the machine's rotation in noise, heard by a microphone. A fault
modulates the harmonics, as a broken tooth does, and whistles between them. Time changes the
machine: it turns more slowly, wear makes it resonate, and dust on the microphone damps high
frequencies.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

RATE, WINDOW, HOP = 16_000, 1024, 512
"""Samples per second, in a window of the spectrogram, and from one window to the next."""
BANDS, WINDOWS = 128, 5
"""Bands of the mel scale, and windows that a frame holds: 640 numbers, as MLPerf Tiny's has."""


@dataclass(frozen=True)
class Machine:
    """How a machine sounds."""

    turns: float = 47.0
    """Hertz of its first harmonic."""
    wear: float = 0.0
    """How many times its amplitude is added at 3 kHz, where the machine resonates."""
    dust: float = 0.0
    """Above 1 kHz the microphone damps by this power of the frequency: 0.5 is 3 dB an octave."""


NEW, WORN = Machine(), Machine(turns=44.0, wear=2.0, dust=0.5)


def frames(
    machine: Machine, count: int, generator: np.random.Generator, fault: bool = False
) -> np.ndarray:
    """Frames u8 [count, 640] of as many sounds: half decibels above a floor."""
    made = [_frame(machine, generator, fault) for _ in range(count)]
    return np.clip(np.round(np.array(made)), 0, 255).astype(np.uint8)


def _frame(machine: Machine, generator: np.random.Generator, fault: bool) -> np.ndarray:
    size = WINDOW + (WINDOWS - 1) * HOP
    seconds = np.arange(size) / RATE
    turns = machine.turns * (1 + 0.01 * generator.standard_normal())
    loud = np.exp(0.15 * generator.standard_normal())
    order = np.arange(1, 33)[:, None]
    strengths = loud * order**-0.8 * np.exp(0.1 * generator.standard_normal(order.shape))
    phases = 2 * np.pi * (order * turns * seconds + generator.random(order.shape))
    tones = np.sum(strengths * np.sin(phases), axis=0)
    if fault:
        depth, rate = generator.uniform(0.3, 0.8), generator.uniform(20, 30)
        tones *= 1 + depth * np.sin(2 * np.pi * rate * seconds)
        whistle = turns * (order[10] + generator.integers(0, 20) + 0.5)
        tones += generator.uniform(0.05, 0.15) * loud * np.sin(2 * np.pi * whistle * seconds)
    sound = np.fft.rfft(tones + 0.3 * generator.standard_normal(size))
    hertz = np.arange(len(sound)) * RATE / size
    sound *= 1 + machine.wear * np.exp(-(((hertz - 3000) / 800) ** 2))
    sound *= np.maximum(hertz / 1000, 1) ** -machine.dust
    sound = np.fft.irfft(sound, size)
    windows = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(windows * np.hanning(WINDOW))) ** 2 @ _bands()
    return (20 * np.log10(power + 1e-3)).ravel() + 60


@functools.cache
def _bands() -> np.ndarray:
    """The weight f64 [513, 128] of each frequency in each band: triangles on the mel scale."""
    mel = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, mel, BANDS + 2) / 2595) - 1)
    hertz = np.arange(WINDOW // 2 + 1)[:, None] * RATE / WINDOW
    rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(np.minimum(rise, fall), 0) + 1e-6
