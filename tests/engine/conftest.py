"""The models that the engine's tests run on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devices.fixture import DEVICES
from tests.devices.fixture import device as device
from tests.devices.fixture import other as other
from tests.devices.fixture import plain_cpu as plain_cpu
from tests.engine.engine_reference import CONFIGS, make_model, train

_FIRST = next(iter(CONFIGS))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves all shapes but the first on a second device to `make heavy`: one computes there as the others do."""
    for item in items:
        given = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        if given.get("device") in DEVICES[1:] and given.get("model", _FIRST) != _FIRST:
            item.add_marker(pytest.mark.heavy)


@pytest.fixture(scope="session", params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Any:
    """Each shape in turn."""
    return make_model(request.param)


@pytest.fixture(scope="session")
def one_model() -> Any:
    """One shape, for what does not depend on it."""
    return make_model("qwen3-gqa-tied")


@pytest.fixture(scope="session")
def trained_model() -> Any:
    """A model whose distributions are sharp, as training leaves them."""
    return train(make_model("qwen3-gqa-tied"), 120)
