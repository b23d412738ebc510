"""The worked example of the notes, chapter 13: a model of 24 numbers, small enough to follow every one of them.

The vocabulary has three entries: A = 患者服用华法林后 ("after the patient took warfarin"), B = 出现 ("there appeared") and
C = 黑便 ("black stool"). The input is A B, the target C. One head of causal attention lets the position of B read A; a
residual connection, an output matrix and cross-entropy follow. Here d_k = 1, so the scores need no scaling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chainrule.autograd import named
from chainrule.nn import Module, Parameter, causal_mask, cross_entropy, softmax

TOKENS = ("患者服用华法林后", "出现", "黑便")
IDS = (0, 1)  # A, B
TARGET = 2  # C


class WorkedExample(Module):
    """Attention, residual, output: 24 parameters E (3, 2), WQ (2, 1), WK (2, 1), WV (2, 2), WO (2, 2), U (2, 3).

    Called with token ids (T,) and the id of the token that follows, it returns the loss. The nodes are called
    X Q K V S A Z R h logits loss, as in the notes.
    """

    def __init__(self) -> None:
        self.E = Parameter([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        self.WQ = Parameter([[0.0], [1.0]])
        self.WK = Parameter([[1.0], [0.0]])
        self.WV = Parameter([[1.0, 0.0], [0.0, 1.0]])
        self.WO = Parameter([[1.0, 0.0], [0.0, 1.0]])
        self.U = Parameter([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]])

    def forward(self, ids: Sequence[int] = IDS, target: int = TARGET) -> Any:
        X = named("X", self.E[list(ids)])  # (T, d)
        Q = named("Q", X @ self.WQ)  # (T, d_k)
        K = named("K", X @ self.WK)  # (T, d_k)
        V = named("V", X @ self.WV)  # (T, d)
        S = named("S", Q @ K.T)  # (T, T): what each position asks of each
        A = named("A", softmax(S, causal_mask(len(ids), len(ids))))  # (T, T): how much it reads
        Z = named("Z", A @ V)  # (T, d): what it reads
        R = named("R", X + Z @ self.WO)  # (T, d)
        h = named("h", R[-1])  # (d,): the last position predicts
        logits = named("logits", h @ self.U)  # (vocabulary,)
        return named("loss", cross_entropy(logits, target))
