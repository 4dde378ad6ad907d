"""The models that the engine's tests run on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devices.fixture import device as device
from tests.devices.fixture import other as other
from tests.devices.fixture import plain_cpu as plain_cpu
from tests.engine.engine_reference import CONFIGS, make_model, train


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
