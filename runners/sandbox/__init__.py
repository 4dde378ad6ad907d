"""A sandbox for untrusted code, such as programs of models: run a function in a confined fork of this process."""

from runners.sandbox.confine import (
    LONGEST_REPLY,
    CallReply,
    CallTimeout,
    Ending,
    Sandbox,
    SandboxedFork,
    empty_environment,
    limit_memory,
    python_folders,
    write_all,
)
from runners.sandbox.kernel import lacking, landlock_version

__all__ = [
    "LONGEST_REPLY", "CallReply", "CallTimeout", "Ending", "Sandbox", "SandboxedFork",
    "empty_environment", "lacking", "landlock_version", "limit_memory", "python_folders", "write_all",
]  # fmt: skip
