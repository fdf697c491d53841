"""linear + cross_entropy in chunks, and the scaling of its gradients: calls of our own operators."""

from __future__ import annotations

from nbcompile.compiler.linear_cross_entropy import operator as operators
from nbcompile.compiler.lower.registry import library

library(
    "linear and cross_entropy at once, in chunks of rows: the logits never exist whole",
    operators.linear_cross_entropy(),
)
library("gradients made with the loss, scaled where they lie", operators.scale_gradient())
