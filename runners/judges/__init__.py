"""Ask a model behind an address whether answers are right."""

from runners.judges.chat import Chat, ChatReply
from runners.judges.verdicts import Verdicts

__all__ = ["Chat", "ChatReply", "Verdicts"]
