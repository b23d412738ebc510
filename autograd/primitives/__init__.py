"""The operations that differentiate, by family. Importing this package teaches NumPy's functions about Tensors."""

from chainrule.autograd.primitives import elementwise, indexing, products, reductions, shape

__all__ = ["elementwise", "indexing", "products", "reductions", "shape"]
