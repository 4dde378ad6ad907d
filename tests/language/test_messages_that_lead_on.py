"""Messages whose help can be followed: what it says to write is taken, and nothing is told of twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from reodsl.diagnostics.model import Diagnostic
from reodsl.language import CompileResult, compile_file
from reodsl.language.hints import FUNCTIONS_ELSEWHERE, METHODS
from tests.language.conftest import HEAD, MINE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def errors(compiled: Callable[..., CompileResult]) -> Callable[[str], list[Diagnostic]]:
    def run(text: str) -> list[Diagnostic]:
        return [each for each in compiled(text).diagnostics if each.severity == "error"]

    return run


def amended(line: str) -> str:
    return f"{HEAD}{MINE}experiment other = mine {{\n  {line}\n}}\n"


@pytest.mark.parametrize(
    ("line", "helps"),
    [
        ("loss_type = dapo", "did you mean `loss { … }`?"),
        ("scale_rewards = false", "did you mean `advantage { normalise = … }`?"),
        ("optimiser = adam", "did you mean `optim`?"),
        ("evaluation = 1", "did you mean `eval`?"),
        ("gpus = 8", "did you mean `cluster`?"),
        ("save = 2", "did you mean `save_every`?"),
    ],
)
def test_an_objective_of_other_tools_leads_to_the_setting_for_it(
    errors: Callable[[str], list[Diagnostic]], line: str, helps: str
) -> None:
    (found,) = errors(amended(line))
    assert (found.code, found.help) == ("E0203", helps)


@pytest.mark.parametrize(
    ("line", "code", "advice"),
    [
        ("kl = .1", "E0136", "0.1"),
        ("clip { low = .2, high = .28 }", "E0136", "0.2"),
        ("monitor = 64", "E0301", "monitor { questions = 64, samples = 8, every = 20 steps }"),
        ("teacher_follows = 0.9", "E0301", "teacher_follows { decay = 0.9, every = 10 steps }"),
        ("teacher_follows = 20 steps", "E0301", "teacher_follows { every = 20 steps }"),
        ("teacher_follows = true", "E0301", "teacher_follows { every = 10 steps }"),
        ("rollout = 64", "E0301", "rollout { max_tokens = 64 tokens }"),
        ("optim = 1e-6", "E0301", "optim { lr = 1e-6 }"),
        ("lora = 8", "E0301", "lora { rank = 8 }"),
    ],
)
def test_a_value_in_another_form_leads_to_one_that_is_whole(
    errors: Callable[[str], list[Diagnostic]], line: str, code: str, advice: str
) -> None:
    found = errors(amended(line))
    assert {each.code for each in found} == {code}
    assert found[0].help == f"write `{advice}`"
    if code == "E0301":
        kl = "kl = 1, " if "teacher" in advice else ""
        # A monitor set is read by a track, and this reward has none.
        idle = ["E0521"] if "monitor" in advice else []
        assert [each.code for each in errors(amended(kl + advice))] == (idle or ["E0214"])


@pytest.mark.parametrize(
    ("body", "says", "helps"),
    [
        (
            "let c = 3\nmean(c * prob(t) for t in y)",
            "in this statistic over tokens",
            "it may read its tokens, tracks and constants",
        ),
        ("mean(prob(t) for t in truth)", "`mean` runs over", "write `… in truth(y)`"),
        ("let c = 3\nc * mean(prob(t) for t in b)", "`mean` runs over", "`group` is"),
    ],
)
def test_what_a_statistic_over_tokens_knows_is_said(
    errors: Callable[[str], list[Diagnostic]], body: str, says: str, helps: str
) -> None:
    (found,) = errors(f"{HEAD}{MINE}reward r {{\n{body}\n}}\n")
    assert says in found.message
    assert str(found.help).startswith(helps)


def test_a_method_in_the_place_of_a_block_leads_to_its_settings(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    """An experiment of the library has that name, and is none of a loss's settings."""
    (found,) = errors(amended("loss = cispo"))
    assert found.code == "E0201"
    assert "`loss { clip = weight }`" in str(found.help)


@pytest.mark.parametrize(
    "name", sorted({helps: name for name, helps in FUNCTIONS_ELSEWHERE.items()}.values())
)
def test_a_function_of_other_languages_leads_to_what_serves(
    errors: Callable[[str], list[Diagnostic]], name: str
) -> None:
    """What is said to be written is taken, of a number in place of `…`."""
    reward = "reward r {{\n  let a = len(y) / 1K tokens\n  {}\n}}\n"
    (found,) = errors(HEAD + MINE + reward.format(f"correct(y) + {name}(a)"))
    assert (found.code, found.help) == ("E0201", FUNCTIONS_ELSEWHERE[name])
    (code,) = re.findall("`([^`]*)`", FUNCTIONS_ELSEWHERE[name])
    if "kl" in code:
        assert not errors(HEAD + MINE.replace("reward = outcome", f"reward = outcome\n  {code}"))
        return
    value = code.replace("…", "clip(a, 0, 1)")
    value = f"1 if {value} else 0" if ">" in code.replace("> 0 else", "") or "==" in code else value
    value = (
        f"correct(y) / {value} * 1 token"
        if code == "len(y)"
        else f"{value} + z(a)"
        if code[0] == "z"
        else value
    )
    value = f"correct(y) + {value} / 1K tokens" if code.startswith("mean(len") else value
    assert not errors(HEAD + MINE + reward.format(value)), value


def test_functions_are_listed_by_nearness_and_far_ones_are_not_proposed(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    def helps(name: str) -> str:
        (found,) = errors(f"{HEAD}{MINE}reward r {{\n  correct(y) + {name}(y)\n}}\n")
        return found.help or ""

    assert helps("lenn") == "did you mean `len`?"
    assert helps("corect") == "did you mean `correct`?"
    # The likest come first, and a third of all is not what begins with a to f.
    assert re.match("functions are `(uniform|trapezoid)`, `", helps("unit_weight_of")), helps(
        "unit_weight_of"
    )
    assert helps("unit_weight_of").endswith("more")


def test_a_param_of_an_imported_file_is_set_as_the_help_says(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "common.reo").write_text(
        f"{HEAD}param longer: int = 400\n{MINE.replace('400 steps', '1 steps * longer')}"
    )
    spec = tmp_path / "spec.reo"
    text = "from .parts.common import mine\nexperiment other = mine { kl = 1e-3 }\n"
    spec.write_text(text)
    (wrong,) = compile_file(spec, sets={"longer": "7"}).diagnostics
    place, clause = re.fullmatch(
        "it is a param of (.*): change it there, or import it here, `(.*)`, and set it", wrong.help or ""
    ).groups()  # type: ignore[union-attr]
    assert Path(place.rpartition(":")[0]) == tmp_path / "parts" / "common.reo"
    assert (
        (tmp_path / "parts" / "common.reo")
        .read_text()
        .split("\n")[int(place.rpartition(":")[2]) - 1]
        .startswith("param")
    )
    spec.write_text(f"{clause}\n{text}")
    mended = compile_file(spec, sets={"longer": "7"})
    assert mended.diagnostics == ()
    assert mended.spec is not None
    assert '"steps":7,' in mended.spec.model_dump_json()


PLACES = (
    "loss {{ clip = {} }}", "loss {{ ratio = {} }}", "loss_mean = {}", "advantage {{ normalise = {} }}", "credit = {}",
    'loss {{ clip = "{}" }}', "loss = {}", "{} = true", "loss {{ {} = true }}",
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_in_place_of_a_value_is_told_how_it_is_written(
    errors: Callable[[str], list[Diagnostic]], name: str
) -> None:
    """Wherever it stands; and what the help says to write is taken."""
    place = PLACES[sorted(METHODS).index(name) % len(PLACES)]
    for each in {place, PLACES[0]}:
        (found,) = errors(amended(each.format(name)))
        assert found.help == METHODS[name], each
    lines = [part for part in re.findall("`([^`]*)`", METHODS[name]) if "=" in part]
    if name not in ("dpo", "simpo"):  # These train on pairs, which the rest of the spec does not have.
        # Two experiments without a study are all that is wrong.
        assert [each.code for each in errors(amended("\n  ".join(lines)))] == ["E0214"], lines


def test_a_reward_of_the_library_in_place_of_a_word(errors: Callable[[str], list[Diagnostic]]) -> None:
    (found,) = errors(amended("loss { clip = laser }"))
    assert found.help == "`laser` is a reward: `reward = std.methods.laser`"
    (found,) = errors(amended("loss { clip = mine }"))
    assert found.help == "write `clip = weight`, for example"


@pytest.mark.parametrize("name", ["value_coef", "gae_lambda"])
def test_what_no_objective_has_is_said_to_be_unsupported(
    errors: Callable[[str], list[Diagnostic]], name: str
) -> None:
    (found,) = errors(amended(f"{name} = 0.1"))
    assert found.help is not None
    assert found.help.startswith(
        "this is not supported, and no setting has a similar name. The objective is made of `reward`"
    )
    assert "more" not in found.help


def test_a_number_of_a_param_leads_to_the_type_that_it_lacks(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    setting = amended("save_every = n")
    (found,) = errors(f"{setting}\nparam n: int = 4")
    assert found.help == "write `4 steps` here, or set it from a value of the type `steps`"
    (found,) = errors(f"{setting}\nparam n: int = 4 steps")
    assert found.help == "write `4`, without a unit; a name for a number of steps has the type `steps`"
    assert "E0302" not in {each.code for each in errors(f"{setting}\nparam n: steps = 4")}


def test_one_name_for_a_reward_and_an_experiment_is_one_error(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    both = f"{HEAD}reward mine {{\n  correct(y)\n}}\n{MINE}study all {{\n  arm a = mine\n}}\n"
    (found,) = errors(both)
    assert (found.code, found.help) == ("E0208", "give one of them another name")


@pytest.mark.parametrize(("text", "words"), [(r"\n", "is only white space"), ("", "is empty")])
def test_white_space_is_not_called_empty(
    errors: Callable[[str], list[Diagnostic]], text: str, words: str
) -> None:
    (found,) = errors(f'forcing f {{\n  text = "{text}"\n  answer_tokens = 3 tokens\n}}\n')
    assert (found.code, found.message) == ("E0303", f"`text` {words}")


def test_an_answer_may_end_with_its_line(errors: Callable[[str], list[Diagnostic]]) -> None:
    text = 'forcing f {{\n  text = "so"\n  answer_tokens = 3 tokens\n  close = "{}"\n}}\n'
    assert [each.code for each in errors(text.format(r"\n"))] == [
        "E0215"
    ]  # Nothing to run is all that is wrong.
    assert [each.code for each in errors(text.format(""))] == ["E0303"]


def test_an_experiment_called_dpo_trains_by_dpo(errors: Callable[[str], list[Diagnostic]]) -> None:
    alone = MINE.replace("experiment mine", "experiment dpo").replace(
        "reward = outcome", "reward = outcome\n  method = dpo"
    )
    assert all("is defined by itself" not in each.message for each in errors(f"{HEAD}{alone}"))


def test_a_change_of_one_experiment_is_not_told_to_name_it() -> None:
    spec = ROOT / "specs" / "miniature" / "dpo_shortest.reo"
    found = compile_file(spec, amends={"dpo_shortest.entropy": "0.01"}).diagnostics
    (wrong,) = [each for each in found if each.severity == "error"]
    assert wrong.code == "E0521"
    assert wrong.help == "leave it out: `dpo_shortest` does not use it, and only ppo has `entropy`"
    of_all = compile_file(spec, amends={"entropy": "0.01"}).diagnostics
    assert [each.help for each in of_all if each.severity == "error"] == [
        "leave it out: only ppo has `entropy`, and no experiment here trains so"
    ]


def test_nothing_is_trained_by_an_entropy_bonus_at_a_rate_of_0(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    (found,) = errors(amended("entropy = 0.01\n  optim { lr = 0 }"))
    assert (found.code, found.message) == ("E0303", "`lr` must be above 0 and at most 1")


TRACKED = "clip(a, 0, 1, start: 0)"


@pytest.mark.parametrize(
    ("body", "message", "helps"),
    [
        ("correct(y) - a\n  let a = 1", "`a` is defined in a later line", "put its line above this one"),
        (
            f"metric m = correct(y) * a\n  track a = {TRACKED.replace('a,', 'a + m,')}\n  correct(y) - a",
            "`a` is defined in a later line",
            "two lines cannot read each other",
        ),
        (
            "let a = a + 1\n  correct(y) - a",
            "`a` is defined by itself",
            "only a `track` may read its own value, of the step before",
        ),
        (
            "track a = max(a + x.level, 0, start: 0)\n  correct(y) - a",
            "a track knows no number of a question",
            "measure responses",
        ),
        ("metric m = correct(y)\n  correct(y) - m", "`m` is a metric", "write `let m = …`"),
        (
            "track a = len(y)\n  correct(y) - a",
            "not a response",
            "name a response: the variable of `… for z in steps(",
        ),
        (
            "correct(y) + mean(len(y) for z in batch)",
            "not a response",
            "name a response: the variable of `… for z in batch`",
        ),
        (
            f"track step = {TRACKED.replace('a,', 'step,')}\n  correct(y) - step",
            "`step` means",
            "another name",
        ),
        (
            "track a = mean(correct(z) for z in steps(0 steps), empty: 0)\n  correct(y) - a",
            "1 or more",
            "`for z in steps(20 steps)`",
        ),
        (
            "correct(y) - mean(correct(z) for z in historry(x), empty: 0)",
            "runs over",
            "write `… in history(x)`",
        ),
        ("correct(y) - mean(prob(t) for t in truht(y))", "runs over", "write `… in truth(y)`"),
        (f"treck a = {TRACKED}\n  correct(y) - a", "holds `let`s", "did you mean `track a = …`?"),
        (
            f"track a = {TRACKED.replace('start', 'strat')}\n  correct(y) - a",
            "takes numbers",
            "did you mean `start`?",
        ),
    ],
)
def test_a_slip_in_a_reward_is_one_message_that_leads_on(
    errors: Callable[[str], list[Diagnostic]], body: str, message: str, helps: str
) -> None:
    (found,) = errors(f"{amended('reward = r')}reward r {{\n  {body}\n}}\n")
    assert message in found.message
    assert helps in str(found.help)


def test_terms_are_read_in_the_order_that_they_stand_in(errors: Callable[[str], list[Diagnostic]]) -> None:
    body = 'min(python("own.py:f", y), python("own.py:f", y, seconds: 3))'
    (found,) = errors(f"{amended('reward = r')}reward r {{\n  {body}\n}}\n")
    assert "other limits in another term" in found.message
    (label, other) = found.labels
    assert label.span.column > other.span.column


@pytest.mark.parametrize("setting", ["importance_cap = 2", "kl = 1"])
def test_a_setting_of_the_recipe_in_its_loss_is_told_where_it_belongs(
    errors: Callable[[str], list[Diagnostic]], setting: str
) -> None:
    (found,) = errors(amended(f"loss {{ {setting} }}"))
    name = setting.split()[0]
    assert (
        found.help == f"`{name}` is a setting of the declaration around this block: write `{name} = …` there"
    )


def test_wordings_in_the_wrong_order_are_one_message(errors: Callable[[str], list[Diagnostic]]) -> None:
    words = "wording free { }\nwording easy { when = mean(len(z) for z in ref) < 1K tokens }\n"
    (found,) = errors(words + amended("rollout { wordings = [free, easy] }\n  reference_samples = 4"))
    assert found.help == "give `free` another `when`, or put it last"


def test_a_share_of_all_questions_is_told_to_be_none(errors: Callable[[str], list[Diagnostic]]) -> None:
    """Two of three wordings in turn would be a second message, of what nobody meant."""
    words = "wording first { share = 100% }\nwording free { }\nwording third { }\n"
    (found,) = errors(words + amended("rollout { wordings = [first, free, third] }"))
    assert found.code == "E0521"
    assert "below 100%" in str(found.help)


@pytest.mark.parametrize(
    ("member", "message", "helps"),
    [
        ("arm mien = mien", "there is no `mien` to make this arm from", "did you mean `mine`?"),
        ("arm mien = mien { kl = 1 }", "there is no `mien` to make this arm from", "did you mean `mine`?"),
        (
            "arm qwen3_8b = qwen3_8b",
            "there is no `qwen3_8b` to make this arm from",
            "import it: `from std.models import qwen3_8b`",
        ),
        (
            "frontier reported_7b = reported_7b",
            "there is no `reported_7b` to make this frontier from",
            "this file has",
        ),
    ],
)
def test_a_misspelt_name_that_the_arm_has_too_is_no_circle(
    errors: Callable[[str], list[Diagnostic]], member: str, message: str, helps: str
) -> None:
    found = errors(f"{HEAD}{MINE}study all {{\n  arm base = mine\n  {member}\n}}\n")
    assert [(each.code, each.message) for each in found] == [("E0201", message)]
    assert str(found[0].help).startswith(helps)


def test_a_declaration_made_from_itself_is_told_what_it_may_mean(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    (found,) = errors(HEAD + MINE.replace("mine = ppo", "pppo = pppo"))
    assert (found.code, found.help) == ("E0209", "use another name in its value: `ppo`, for example")
    (alone,) = errors(HEAD + MINE.replace("mine = ppo", "other = other"))
    assert (alone.code, alone.help) == ("E0209", "use another name in its value")


def test_what_a_recipe_lacks_is_told_once_for_all_that_is_made_from_it(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    bare = MINE.replace("experiment mine", "recipe bare").replace("  data = areal_boba_7b\n", "")
    made = "experiment one = bare\nexperiment two = bare { kl = 1 }\nexperiment three = two { kl = 2 }\n"
    study = "study all {\n  arm one = one\n  arm two = two\n  arm four = bare\n}\n"
    (found,) = errors(HEAD + bare + made + study)
    assert (found.code, found.labels[1].text) == ("E0304", "does not set it either")
    # Two that come from nothing in common lack it each.
    alone = MINE.replace("  data = areal_boba_7b\n", "")
    both = errors(HEAD + alone + alone.replace("mine", "other"))
    assert [each.code for each in both] == ["E0304", "E0304"]


def test_a_syntax_error_brings_no_warning_of_what_it_hides(compiled: Callable[..., CompileResult]) -> None:
    text = f"{HEAD}reward r(a: number) {{\n  let b = len(y) / 1 token\n  correct(y) - b b\n}}\n"
    assert [each.code for each in compiled(text).diagnostics if each.severity == "warning"] == []


def test_the_step_of_a_reward_leads_to_a_track_that_is_taken(
    errors: Callable[[str], list[Diagnostic]],
) -> None:
    reward = "reward r {{\n  {}correct(y) - {}\n}}\n"
    (found,) = errors(amended("reward = r") + reward.format("", "step / 100 steps"))
    track, name = re.findall("`([^`]*)`", found.help or "")
    assert [each.code for each in errors(amended("reward = r") + reward.format(f"{track}\n  ", name))] == [
        "E0214"
    ]
