"""The host of a server that someone else started: it gets our weights and is never ended."""

from __future__ import annotations

from dataclasses import replace

import httpx

from reodsl.diagnostics import Problem
from runners.engine.sglang import weights
from runners.engine.sglang.account import Needs, fitting, unusable
from runners.engine.sglang.control import Refused
from runners.engine.sglang.server import Address, cuts_itself, room_in
from runners.engine.sglang.settings import Settings
from runners.engine.sglang.silence import Lost


class Given:
    """A server that someone else started: it gets our weights, and is never ended from here."""

    def __init__(self, address: Address, settings: Settings) -> None:
        self.address, self.settings = address, settings

    def begin(self) -> None:
        """It runs already."""

    def start(self) -> Address:
        """Asks it what it runs with, and hands it the model. Raises E0828, E0830."""
        settings = self.settings
        account = fitting(self.address, Needs(settings.context, settings.tensor_parallel, settings.model))
        try:
            weights.from_disk(settings.model, [self.address], 0)
        except (Lost, Refused) as fault:
            raise Problem(unusable(self.address, str(fault))) from fault
        return replace(
            self.address,
            version=account.version,
            cuts=cuts_itself(self.address),
            room=room_in(account.settings),
        )

    @property
    def alive(self) -> bool:
        """Whether it answers."""
        try:
            return httpx.get(f"{self.address.url}/health", trust_env=False, timeout=10.0).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def near(self) -> bool:
        """Whether its address is this machine's."""
        return httpx.URL(self.address.url).host in ("127.0.0.1", "localhost", "::1")

    def said(self) -> list[str]:
        """Nothing: its log is elsewhere."""
        return []

    def note(self, words: str) -> None:
        """Its log is not ours to write."""

    def kill(self) -> None:
        """It is not ours to end."""

    def stop(self) -> None:
        """It is not ours to end."""
