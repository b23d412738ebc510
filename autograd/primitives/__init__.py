"""The operations that differentiate, by family. Importing this package teaches NumPy's functions about Tensors."""

from chainrule.autograd.primitives import elementwise, indexing, linalg, order, padding, products, reductions, shape

__all__ = ["elementwise", "indexing", "linalg", "order", "padding", "products", "reductions", "shape"]
