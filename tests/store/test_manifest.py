"""Names of arms in a result of before, and what those are called now."""

from __future__ import annotations

from pathlib import Path

import pytest

from reodsl.graph.task import part_digest
from reodsl.ir import digest
from reodsl.store.manifest import Manifest, labels
from reodsl.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store").open()


def put(store: Store, name: str, text: str, **made: object) -> Manifest:
    key = digest({"name": name})
    out = store.begin(key)
    (out / "curves.json").write_text(text)
    return store.commit(key, out, {"name": name}, made)


def content(manifest: Manifest) -> str:
    return part_digest(manifest.checksums, ())


@pytest.mark.parametrize(
    ("now", "found"),
    [
        ({"vanilla": "a", "base": "b"}, {"vanilla": "vanilla", "base": "base"}),
        ({"ppo": "a", "base": "b"}, {"vanilla": "ppo", "base": "base"}),
        ({"base": "a", "vanilla": "b"}, {"vanilla": "base", "base": "vanilla"}),
        ({"ppo": "a", "base": "b", "more": "c"}, {"vanilla": "ppo", "base": "base"}),
        ({"base": "b"}, {"vanilla": "vanilla", "base": "base"}),
        ({"ppo": "c", "base": "b"}, {"vanilla": "vanilla", "base": "base"}),
    ],
)
def test_a_name_is_found_by_what_it_stood_for(
    store: Store, now: dict[str, str], found: dict[str, str]
) -> None:
    kept = {text: put(store, f"evaluation {text}", text) for text in "abc"}
    contents = {"arm:vanilla": content(kept["a"]), "arm:base": content(kept["b"]), "frontier": "f"}
    result = put(store, "score", "rows", contents=contents)
    folders = {name: store.path(kept[text].key) for name, text in now.items()}
    assert labels("score", store.path(result.key), folders) == found


def test_arms_that_came_out_alike_are_told_apart_by_name(store: Store) -> None:
    one, two = put(store, "one", "same"), put(store, "two", "same")
    result = put(store, "score", "rows", contents={"arm:a": content(one), "arm:b": content(two)})
    now = {"b": store.path(one.key), "new": store.path(two.key)}
    assert labels("score", store.path(result.key), now) == {"a": "new", "b": "b"}


def test_outside_of_a_store_nothing_is_known_of_names(tmp_path: Path) -> None:
    assert labels("score", tmp_path, {"vanilla": tmp_path}) == {}
