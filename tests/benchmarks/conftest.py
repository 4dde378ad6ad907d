"""The devices that benchmarks are tried on."""

from tests.devices.fixture import device as device
