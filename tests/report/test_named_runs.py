"""Runs are named by their studies, and runs of one study by what changed."""

from __future__ import annotations

import pytest

from reodsl.ir import Spec
from reodsl.report.run import name_runs
from tests.report.synthetic import World

AT = ["2026-01-05T12:30:10+00:00", "2026-01-06T08:00:00+00:00", "2026-01-07T09:15:00+00:00"]


def changed(spec: Spec, *swaps: tuple[str, str], **update: object) -> Spec:
    """The spec with some of its text swapped, and other parts."""
    text = spec.model_dump_json()
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    return Spec.model_validate_json(text).model_copy(update=update)


@pytest.fixture
def spec(one_seed: World) -> Spec:
    """The spec of a study."""
    return one_seed.spec


def test_runs_of_several_studies_have_their_names(spec: Spec) -> None:
    mine = changed(spec, ('"name":"quickstart"', '"name":"mine"'))
    assert name_runs([spec, mine], AT) == ["quickstart", "mine"]
    rate = changed(spec, ('"lr":0.0005', '"lr":0.0001'))
    assert name_runs([spec, mine, rate], AT) == ["quickstart lr=0.0005", "mine", "quickstart lr=0.0001"]


@pytest.mark.parametrize(
    ("swaps", "expected"),
    [
        ([('"lr":0.0005', '"lr":0.0001')], ["lr=0.0005", "lr=0.0001"]),
        ([('"steps":24', '"steps":8')], ["steps=24", "steps=8"]),
        ([('"seeds":[1]', '"seeds":[1,2]')], ["seeds=[1]", "seeds=[1, 2]"]),
        (
            [('"lr":0.0005', '"lr":0.0001'), ('"steps":24', '"steps":8')],
            ["lr=0.0005, steps=24", "lr=0.0001, steps=8"],
        ),
    ],
)
def test_runs_of_one_study_are_named_by_the_settings_that_changed(
    spec: Spec, swaps: list[tuple[str, str]], expected: list[str]
) -> None:
    assert sorted(",".join(name_runs([spec, changed(spec, *swaps)], AT)).split(",")) == sorted(
        ",".join(expected).split(",")
    )


def test_what_one_of_three_runs_changed_is_in_the_names_of_all(spec: Spec) -> None:
    rates = [
        spec,
        changed(spec, ('"lr":0.0005', '"lr":0.0001')),
        changed(spec, ('"lr":0.0005', '"lr":0.001')),
    ]
    assert name_runs(rates, AT) == ["lr=0.0005", "lr=0.0001", "lr=0.001"]


def test_params_come_first_since_a_person_set_them(spec: Spec) -> None:
    few = changed(spec, ('"steps":24', '"steps":8'), params={"seed": "1", "length": "a/b:8"})
    many = spec.model_copy(update={"params": {"seed": "1", "length": "24"}})
    assert name_runs([few, many], AT) == ["length=a_b_8", "length=24"]


def test_runs_in_which_nothing_changed_have_the_time_of_their_start(spec: Spec) -> None:
    assert name_runs([spec, spec], AT) == [
        "quickstart of 2026-01-05 12.30.10",
        "quickstart of 2026-01-06 08.00.00",
    ]
    same = [AT[0], AT[0]]
    assert name_runs([spec, spec], same) == [f"quickstart of 2026-01-05 12.30.10 ({each})" for each in (1, 2)]


def test_long_values_name_nothing(spec: Spec) -> None:
    text = '"text":"</think> answer \\\\boxed{"'
    longer = changed(spec, (text, text.replace("answer", "the answer to all of the above is")))
    assert all(name.startswith("quickstart of ") for name in name_runs([spec, longer], AT))
