"""Random numbers, which a compiled program draws as eager does."""

from __future__ import annotations

from tests.fuzz.draw import Draw, operation


@operation("random", weight=3.0)
def dropout(d: Draw) -> str:
    x = d.floating()
    p = d.choice([0.5, 0.1, 0.25])
    return d.choice([f"F.dropout({x}, {p})", f"torch.dropout({x}, {p}, True)"])


@operation("random", weight=0.5, exact=True)
def dropout_off(d: Draw) -> str:
    return f"F.dropout({d.floating()}, 0.5, training=False)"


@operation("random", weight=0.5)
def feature_dropout(d: Draw) -> str:
    return d.choice([f"F.dropout2d({d.floating(4, 4)}, 0.4)", f"F.alpha_dropout({d.floating()}, 0.3)"])


@operation("random", weight=1.5)
def random_like(d: Draw) -> str:
    x = d.floating()
    return d.choice(
        [f"torch.rand_like({x})", f"torch.randn_like({x})", f"torch.bernoulli(torch.sigmoid({x}.detach()))"]
    )


@operation("random", weight=1.0)
def random_sized(d: Draw) -> str:
    x = d.tensor(1)
    size = d.size(x, -1)
    return d.choice(
        [
            f"torch.rand({size})",
            f"torch.randn({size}, 2)",
            f"torch.randint(0, 5, ({size},))",
            f"torch.randperm({size})",
            f"torch.normal(0.0, 1.0, ({size},))",
        ]
    )


@operation("random", weight=0.4)
def rrelu(d: Draw) -> str:
    return f"F.rrelu({d.floating()}, training={d.boolean()})"
