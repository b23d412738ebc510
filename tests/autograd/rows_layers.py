"""The table of primitives, continued: activations and norms."""

from table import each, positive, real, row

from chainrule.nn.activations import erf, gelu, gelu_tanh, silu
from chainrule.nn.norms import layer_norm, rms_norm

ROWS = [
    each("erf", erf, real),
    each("erf beyond 1", lambda x: erf(x + 1), positive),
    *(each(f.name, f, real)._replace(reference=f.definition) for f in (gelu, gelu_tanh, silu)),
    row("layer_norm", layer_norm, real(2, 3, 4), real(4), real(4), reference=layer_norm.definition),
    row("layer_norm alone", layer_norm, real(3, 4), reference=layer_norm.definition),
    row("layer_norm of one position", layer_norm, real(5), real(5), reference=layer_norm.definition),
    row("layer_norm of no position", layer_norm, real(0, 4), real(4), real(4), reference=layer_norm.definition),
    row(
        "layer_norm shifted",
        lambda x, beta: layer_norm(x, None, beta, eps=0.1),
        real(3, 4),
        real(4),
        reference=lambda x, beta: layer_norm.definition(x, None, beta, eps=0.1),
    ),
    row("rms_norm", rms_norm, real(2, 3, 4), real(4), reference=rms_norm.definition),
    row("rms_norm alone", lambda x: rms_norm(x, eps=0.1), real(5), reference=lambda x: rms_norm.definition(x, eps=0.1)),
]
