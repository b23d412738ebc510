"""Models on the engine."""

from chainrule.models import worked_example
from chainrule.models.gpt import GPT, GPTConfig
from chainrule.models.worked_example import WorkedExample

__all__ = ["GPT", "GPTConfig", "WorkedExample", "worked_example"]
