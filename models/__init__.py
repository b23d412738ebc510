"""Models on the engine."""

from chainrule.models import worked_example
from chainrule.models.worked_example import WorkedExample

__all__ = ["WorkedExample", "worked_example"]
