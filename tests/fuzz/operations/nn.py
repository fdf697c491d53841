"""Layers: convolution, pooling, norms of every rank, upsampling, attention."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Made, Skip, Value, operation


def _image(d: Draw, least: int = 3, most: int = 5) -> Value:
    return d.floating(
        least, most, lambda x: all(all(shape) for shape in x.shapes) and max(x.shape[1:2] or [0]) <= 33
    )


def _channels(d: Draw, x: Value, axis: int = 1, dtype: object = None) -> Value:
    return d.new_input([(shape[axis],) for shape in x.shapes], x.dtype, "positive")


@operation("nn", weight=2.0)
def conv(d: Draw) -> str:
    x = _image(d)
    rank = x.dim - 2
    channels = {shape[1] for shape in x.shapes}
    if len(channels) > 1:
        raise Skip
    inner = channels.pop()
    groups = d.choice([g for g in (1, 1, 2, inner) if inner % g == 0])
    outer = groups * d.choice([1, 2, 3])
    kernel = d.choice([1, 2, 3])
    extra = f", stride={d.choice([1, 1, 2])}, padding={d.choice([0, 1, 1])}, groups={groups}"
    if d.chance(0.2):
        weight = d.new_input([(inner, outer // groups, *[kernel] * rank)] * len(x.shapes), x.dtype)
        return f"F.conv_transpose{rank}d({x}, {weight}{extra})"
    if kernel > 1 and d.chance(0.2):
        extra += ", dilation=2"
    weight = d.new_input([(outer, inner // groups, *[kernel] * rank)] * len(x.shapes), x.dtype)
    bias = f", {d.new_input([(outer,)] * len(x.shapes), x.dtype)}" if d.boolean() else ""
    return f"F.conv{rank}d({x}, {weight}{bias}{extra})"


@operation("nn", weight=1.5)
def pool(d: Draw) -> Made:
    x = _image(d, 2, 5)
    rank = max(1, x.dim - d.choice([1, 2]))
    if rank > 3:
        raise Skip
    kernel, stride = d.choice([1, 2, 3]), d.choice(["", ", stride=1", ", stride=2"])
    padding = ", padding=1" if kernel > 1 and d.boolean() else ""
    ceil = ", ceil_mode=True" if d.chance(0.25) else ""
    if d.boolean():
        dilation = ", dilation=2" if d.chance(0.15) else ""
        # a window of padding alone has no largest element, and eager's gradient then leaves its tensor
        if dilation and padding and any(1 in shape[-rank:] for shape in x.shapes):
            raise Skip
        return Made(f"F.max_pool{rank}d({x}, {kernel}{stride}{padding}{dilation}{ceil})", exact=True)
    counted = ", count_include_pad=False" if d.chance(0.3) else ""
    return Made(f"F.avg_pool{rank}d({x}, {kernel}{stride}{padding}{ceil}{counted})")


@operation("nn", weight=0.4, exact=True)
def pool_with_places(d: Draw) -> Made:
    x = _image(d, 3, 4)
    return Made(f"F.max_pool{x.dim - 2}d({x}, 2, stride={d.choice([1, 2])}, return_indices=True)", results=2)


@operation("nn", weight=0.7)
def adaptive_pool(d: Draw) -> Made:
    x = _image(d, 2, 5)
    rank = max(1, x.dim - d.choice([1, 2]))
    if rank > 3:
        raise Skip
    kind = d.choice(["avg", "max"])
    return Made(f"F.adaptive_{kind}_pool{rank}d({x}, {d.choice([1, 2, 3])})", exact=kind == "max")


@operation("nn", weight=0.3)
def lp_pool(d: Draw) -> str:
    x = _image(d, 3, 4)
    return f"F.lp_pool{x.dim - 2}d({x}.abs() + 0.1, 2, 2)"


@operation("nn", weight=1.5)
def layer_norm(d: Draw) -> str:
    x = d.floating(1, test=lambda x: all(all(shape) for shape in x.shapes))
    count = d.integer(1, min(x.dim, 3))
    sizes = [d.size(x, place - count) for place in range(count)]
    shape = f"({', '.join(sizes)},)"
    if d.chance(0.3):
        return f"F.layer_norm({x}, {shape})"
    if d.chance(0.25):
        weight = d.new_input([s[-count:] for s in x.shapes], x.dtype, "positive")
        return f"F.rms_norm({x}, {shape}, {weight}, 1e-5)"
    weight = d.new_input([s[-count:] for s in x.shapes], x.dtype, "positive")
    bias = d.new_input([s[-count:] for s in x.shapes], x.dtype)
    return f"F.layer_norm({x}, {shape}, {weight}, {bias})"


@operation("nn", weight=1.5)
def group_norm(d: Draw) -> str:
    x = d.floating(2, 5, lambda x: all(all(shape) for shape in x.shapes))
    least = {shape[1] for shape in x.shapes}
    groups = d.choice([g for g in (1, 1, 2, 3, 4, *least) if all(size % g == 0 for size in least)])
    if d.chance(0.4):
        return f"F.group_norm({x}, {groups})"
    return f"F.group_norm({x}, {groups}, {_channels(d, x)}, {_channels(d, x)})"


@operation("nn", weight=1.5)
def batch_norm(d: Draw) -> str:
    x = d.floating(2, 5, lambda x: all(all(shape) for shape in x.shapes))
    if d.boolean():  # by the numbers that are kept
        mean, var = _channels(d, x), _channels(d, x)
        if mean.now.requires_grad or var.now.requires_grad:
            raise Skip
        affine = f", {_channels(d, x)}, {_channels(d, x)}" if d.boolean() else ""
        return f"F.batch_norm({x}, {mean}, {var}{affine})"
    affine = f", {_channels(d, x)}, {_channels(d, x)}" if d.boolean() else ""
    return f"F.batch_norm({x}, None, None{affine or ', None, None'}, training=True)"


@operation("nn", weight=0.6)
def batch_norm_keeping(d: Draw) -> Made:
    """In training, which overwrites the running mean and variance."""
    x = d.floating(2, 5, lambda x: all(all(shape) for shape in x.shapes))
    mean, var = _channels(d, x), _channels(d, x)
    if mean.now.requires_grad or var.now.requires_grad:
        raise Skip
    return Made(f"F.batch_norm({x}, {mean}, {var}, training=True, momentum=0.2)", writes=mean.name)


@operation("nn", weight=0.6)
def instance_norm(d: Draw) -> str:
    x = d.floating(3, 5, lambda x: all(all(shape) for shape in x.shapes))
    return f"F.instance_norm({x})" if d.boolean() else f"F.instance_norm({x}, None, None, {_channels(d, x)})"


@operation("nn", weight=0.4)
def local_norm(d: Draw) -> str:
    return f"F.local_response_norm({_image(d)}, 2)"


@operation("nn", weight=1.0)
def interpolate(d: Draw) -> Made:
    x = _image(d)
    modes = {
        3: ["nearest", "linear"],
        4: ["nearest", "bilinear", "bicubic", "nearest-exact", "area"],
        5: ["nearest", "trilinear"],
    }[x.dim]
    mode = d.choice(modes)
    corners = ", align_corners=True" if "linear" in mode and d.boolean() else ""
    size = d.choice(["scale_factor=2", "scale_factor=1.5", f"size={d.choice([1, 3, 5])}"])
    return Made(f"F.interpolate({x}, {size}, mode={mode!r}{corners})", exact=mode.startswith("nearest"))


@operation("nn", weight=0.3)
def unfold_image(d: Draw) -> Made:
    return Made(
        f"F.unfold({_image(d, 4, 4)}, 2, padding={d.choice([0, 1])}, stride={d.choice([1, 2])})", exact=True
    )


@operation("nn", weight=0.3)
def grid_sample(d: Draw) -> str:
    x = _image(d, 4, 4)
    grid = d.new_input([(shape[0], 3, 3, 2) for shape in x.shapes], x.dtype, "unit")
    mode = d.choice(["zeros", "border"])
    return f"F.grid_sample({x}, {grid}, align_corners={d.boolean()}, padding_mode='{mode}')"


@operation("nn", weight=1.0)
def linear(d: Draw) -> str:
    x = d.floating(1)
    outer = d.choice([1, 2, 4, 5, 8])
    weight = d.new_input([(outer, shape[-1]) for shape in x.shapes], x.dtype)
    bias = f", {d.new_input([(outer,)] * len(x.shapes), x.dtype)}" if d.boolean() else ""
    return f"F.linear({x}, {weight}{bias})"


@operation("nn", weight=0.7)
def attention(d: Draw) -> str:
    q = d.floating(3, 4, lambda x: all(all(shape) for shape in x.shapes))
    k, v = d.like(q), d.like(q)
    causal = d.choice(["", ", is_causal=True"])
    return f"F.scaled_dot_product_attention({q}, {k}, {v}{causal})"


@operation("nn", weight=0.3)
def affine_grid(d: Draw) -> str:
    x = d.pick(lambda x: str(x.dtype) == "torch.float32" and x.dim == 3 and x.shape[1:] == (2, 3))
    return f"F.affine_grid({x}, ({d.size(x, 0)}, 1, 3, 4), align_corners=False)"
