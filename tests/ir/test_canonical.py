"""The canonical form: one text and one digest for one meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from reodsl.ir import IR, canonical, canonical_json, digest
from reodsl.ir.base import Origin, locate
from reodsl.ir.data import Columns, Data, File
from reodsl.ir.expression import Constant, Correct, Infix, Length
from reodsl.ir.reward import Reward
from reodsl.ir.training import Optimizer, Ppo, Sampling, Sft, Stage
from reodsl.language import compile_file
from tests.called import SPECS


def data(name: str) -> Data:
    return Data(name=name, sources=(File(path="train.parquet"),))


def test_a_name_is_no_part_of_identity() -> None:
    assert digest(data("mine")) == digest(data("yours"))
    assert data("mine") != data("yours")


def test_everything_else_is() -> None:
    assert digest(data("mine")) != digest(data("mine").model_copy(update={"verifier": "exact"}))


def test_a_number_has_one_spelling_whatever_it_was_written_as() -> None:
    assert canonical_json(Sampling(max_tokens=8, temperature=1)) == canonical_json(
        Sampling(max_tokens=8, temperature=1.0)
    )
    assert '"lr":1e-05' in canonical_json(Optimizer(algorithm="adam", lr=0.00001))


def test_values_are_frozen_closed_and_finite() -> None:
    sampling = Sampling(max_tokens=8)
    with pytest.raises(ValidationError):
        sampling.max_tokens = 9  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Sampling(max_tokens=8, heat=1.0)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        Sampling(max_tokens=8, temperature=float("nan"))


def test_an_expression_survives_its_json() -> None:
    reward = Reward(
        name="shorter",
        outcome=Infix(
            fn="/", left=Correct(of="y"), right=Infix(fn="+", left=Constant(value=1), right=Length(of="y"))
        ),
    )
    assert Reward.model_validate_json(reward.model_dump_json()) == reward


# How long a busy machine takes to think of an input says nothing of what is tested.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.text(), st.recursive(st.integers() | st.booleans() | st.text(), st.lists), max_size=5)
)
def test_canonical_json_forgets_the_order_of_keys(value: dict[str, object]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert canonical_json(value) == canonical_json(backwards)
    assert json.loads(canonical_json(value)) == canonical(value)


def test_a_field_that_was_added_later_is_in_no_dump_until_it_is_said() -> None:
    stage = Stage(
        name="",
        method=Sft(batch=1, max_tokens=8),
        data=data(""),
        optim=Optimizer(algorithm="adam", lr=1),
        steps=1,
    )
    said = stage.model_copy(update={"microbatch": 64})
    assert "microbatch" not in canonical_json(stage) + stage.model_dump_json()
    assert '"microbatch":64' in canonical_json(said)
    assert '"microbatch":64' in said.model_dump_json()
    assert Stage.model_validate_json(stage.model_dump_json()) == stage
    assert Stage.model_validate_json(said.model_dump_json()) == said
    for kind in (Stage, Ppo):
        assert kind.later <= set(kind.model_fields)


def test_what_is_no_data_has_no_canonical_form() -> None:
    with pytest.raises(TypeError, match="object has no canonical form"):
        canonical({"x": object()})


def test_only_declared_fields_are_presentation() -> None:
    def every(kind: type[IR]) -> list[type[IR]]:
        return [kind, *(found for below in kind.__subclasses__() for found in every(below))]

    for kind in every(IR):
        assert kind.presentation <= set(kind.model_fields), kind


def test_parts_that_are_shared_are_written_as_if_they_were_not() -> None:
    """A spec's text is put together from its parts' texts; the encoder writes the plain data of it anew."""
    for name in ("quickstart.reo", "miniature/two_ways.reo", "qwen3_4b_reo_exp.reo"):
        spec = compile_file(SPECS / name).spec
        plain = json.dumps(canonical(spec), sort_keys=True, separators=(",", ":"), allow_nan=False)
        assert canonical_json(spec) == plain


def test_lines_of_settings_are_no_fields() -> None:
    there = Columns(question="text")
    known = locate(there.model_copy(), {"question": Origin(path="a.reo", line=3)})
    assert (known, dict(known), canonical_json(known)) == (there, dict(there), canonical_json(there))
    assert known.model_copy(update={"id": "n"}).given_at["question"].line == 3
