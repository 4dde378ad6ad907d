"""References and renaming, across files; signatures and hints."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.lsp.analysis import analyse
from reodsl.lsp.meaning import references, rename
from tests.lsp.quickstart import TEXT, at, opened

LIBRARY = """reward own(cost: number in 0..1) {
  let longest = max(len(z) for z in group)
  correct(y) - cost * len(y) / longest
}
reward other { let longest = 1; correct(y) / longest }
"""
USER = "from .library import own as mine, other\nfrom .library import own\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    library, user = tmp_path / "library.reo", tmp_path / "user.reo"
    library.write_text(LIBRARY)
    user.write_text(USER)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "copy.reo").write_text(USER)
    return library, user


def test_references_go_across_files_and_to_the_declaration(files: tuple[Path, Path]) -> None:
    library, user = files
    analysis = analyse(library, {})
    found = references(analysis, {}, *at(LIBRARY, "own("))
    assert [(each.file, each.span.line, each.span.column) for each in found] == [
        (library, 1, 8), (user, 1, 22), (user, 2, 22),
    ]  # fmt: skip
    assert references(analysis, {}, *at(LIBRARY, "correct(y) -")) == ()


def test_a_let_is_found_in_its_own_declaration_alone(files: tuple[Path, Path]) -> None:
    library, _ = files
    analysis = analyse(library, {})
    found = references(analysis, {}, *at(LIBRARY, "longest\n}"))
    assert [each.span.line for each in found] == [2, 3]
    cost = references(analysis, {}, *at(LIBRARY, "cost *"))
    assert [each.span.line for each in cost] == [1, 3]


def test_renaming_changes_every_file_and_they_still_mean_the_same(files: tuple[Path, Path]) -> None:
    library, user = files
    places = rename(analyse(library, {}), {}, *at(LIBRARY, "own("), "mean_one")
    assert not isinstance(places, str)
    texts = {library: LIBRARY, user: USER}
    for each in sorted(places, key=lambda one: (one.span.line, one.span.column), reverse=True):
        lines = texts[each.file].split("\n")
        line = lines[each.span.line - 1]
        lines[each.span.line - 1] = (
            line[: each.span.column - 1] + "mean_one" + line[each.span.end_column - 1 :]
        )
        texts[each.file] = "\n".join(lines)
    assert texts[user] == USER.replace("own", "mean_one")
    before = [each.code for each in analyse(user, {}).findings]
    assert [each.code for each in analyse(user, texts).findings] == before


def test_a_word_of_rewards_is_not_renamed_with_a_declaration_of_its_name(tmp_path: Path) -> None:
    spec = tmp_path / "spec.reo"
    text = (
        'forcing answer { text = "so", answer_tokens = 1 tokens }\n'
        "reward own { mean(prob(t) for t in answer(y), empty: 0) + correct(answer(y[:4 tokens])) }\n"
        "recipe r { forcing = answer }\n"
    )
    spec.write_text(text)
    found = references(analyse(spec, {}), {}, *at(text, "answer {"))
    assert [(each.span.line, each.span.column) for each in found] == [(1, 9), (3, 22)]
    assert references(analyse(spec, {}), {}, *at(text, "answer(y)")) == ()


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ("other", "has a `other` already"),
        ("let", "is not a name"),
        ("2x", "is not a name"),
        ("a b", "is not a name"),
    ],
)
def test_names_that_nothing_can_have(files: tuple[Path, Path], new: str, words: str) -> None:
    told = rename(analyse(files[0], {}), {}, *at(LIBRARY, "own("), new)
    assert isinstance(told, str)
    assert words in told


def test_the_library_is_not_renamed() -> None:
    told = rename(opened(), {}, *at(TEXT, "import ppo", 7), "mine")
    assert isinstance(told, str)
    assert "standard library" in told
    told = rename(opened(), {}, *at(TEXT, "replicate"), "mine")
    assert isinstance(told, str)
    assert "only names that a spec declares" in told


def test_a_rename_that_would_miss_files_is_refused(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, _ = files
    analysis = analyse(library, {library: LIBRARY})
    monkeypatch.setattr("reodsl.lsp.meaning.MOST_FILES", 1)
    told = rename(analysis, {library: LIBRARY}, 1, 8, "cheap")
    assert isinstance(told, str)
    assert "more than 1 specs" in told
