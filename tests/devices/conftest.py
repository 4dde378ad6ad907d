"""The simulated device for its own tests."""

from tests.devices.fixture import plain_cpu as plain_cpu
