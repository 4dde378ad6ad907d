"""Colours by the numbers: contrast of lines and of text, and distances as colour-blind eyes have them."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from reodsl.report import gap, theme
from reodsl.report.theme import COLOURS, UNTRAINED_COLOUR, colours, dashes
from reodsl.report.tradeoff_charts import SMALL_TO_LARGE

CSS = (Path(theme.__file__).parent / "page.css").read_text()
# Machado, Oliveira and Fernandes (2009), the whole of each deficiency, on linear RGB.
SEEN = {
    "everybody": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    digits = colour.lstrip("#")
    digits = "".join(2 * each for each in digits) if len(digits) == 3 else digits
    values = np.array([int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, two: str) -> float:
    """As WCAG 2 has it."""
    low, high = sorted(float(linear(each) @ TO_XYZ[1]) for each in (one, two))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", SEEN)
def test_colours_are_apart_for_all_eyes(eyes: str) -> None:
    for colours_of, least in ((COLOURS, 21), ((*COLOURS, UNTRAINED_COLOUR), 15), (gap.COLOURS, 15)):
        seen = [lab(np.asarray(SEEN[eyes]) @ linear(each)) for each in colours_of]
        assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > least
    # REG has one hue, from light to dark.
    lightness = [lab(np.asarray(SEEN[eyes]) @ linear(each))[0] for each in SMALL_TO_LARGE]
    assert min(a - b for a, b in pairwise(lightness)) > 12


@pytest.mark.parametrize("paper", ["#ffffff", "#171a1f"])
def test_lines_stand_out_from_the_paper(paper: str) -> None:
    assert min(contrast(each, paper) for each in (*COLOURS, UNTRAINED_COLOUR)) >= 3


def test_twenty_six_arms_differ_in_colour_or_dashes() -> None:
    arms = [f"arm{number}" for number in range(26)]
    chosen = colours(arms)
    shown = {(chosen[arm], dash) for arm, dash in dashes(chosen).items()}
    assert len(shown) == 26
    assert colours(arms, ["arm3"])["arm3"] == UNTRAINED_COLOUR
    assert set(dashes(colours(arms[:8])).values()) == {0}


@pytest.mark.parametrize("block", re.findall(r"\{\s*(?:color-scheme[^;]*;)?\s*(--paper[^}]*)\}", CSS))
def test_text_has_a_contrast_of_four_and_a_half(block: str) -> None:
    named = dict(re.findall(r"--(\w+): (#[0-9a-f]+);", block))
    grounds = [named[each] for each in ("paper", "card", "soft", "tint") if each in named]
    for ink in ("ink", "muted", "faint", "good", "bad"):
        for ground in grounds:
            assert contrast(named[ink], ground) >= 4.5, (ink, named[ink], ground)


@pytest.mark.parametrize("dark", [False, True])
def test_text_of_charts_has_a_contrast_of_four_and_a_half(dark: bool) -> None:
    chosen = theme.config(dark=dark)
    ground = chosen["style"]["halo"]["stroke"]
    parts = [chosen[part] for part in ("axis", "title", "legend", "header", "text")]
    inks = {
        ink
        for part in parts
        for key, ink in part.items()
        if key.lower().endswith("color") and key != "gridColor"
    }
    assert len(inks) > 1
    for ink in inks:
        assert contrast(ink, ground) >= 4.5, (ink, ground)
