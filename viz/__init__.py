"""Seeing it: pictures and pages of graphs and of traces."""

from chainrule.viz.curves import loss_curve
from chainrule.viz.drawing import Drawing, draw, explore
from chainrule.viz.graph_model import GraphModel, graph_model
from chainrule.viz.svg import LayoutError

__all__ = ["Drawing", "GraphModel", "LayoutError", "draw", "explore", "graph_model", "loss_curve"]
