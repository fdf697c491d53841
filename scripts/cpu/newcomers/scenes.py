"""Atoms, rendering, compositing, statistics, geometry, points."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from newcomers.corpus import program, training

# ----------------------------------------------------------------------------- 15, 16: atomistic networks


class _Interaction(nn.Module):
    def __init__(self, dim=48, n_rbf=30, cutoff=5.0):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0, cutoff, n_rbf))
        self.gamma = 0.5 / (cutoff / n_rbf) ** 2
        self.filter1, self.filter2 = nn.Linear(n_rbf, dim), nn.Linear(dim, dim)
        self.inp, self.out1, self.out2 = (
            nn.Linear(dim, dim, bias=False),
            nn.Linear(dim, dim),
            nn.Linear(dim, dim),
        )

    def forward(self, x, pos, src, dst):
        r = (pos[src] - pos[dst]).norm(dim=-1)
        rbf = torch.exp(-self.gamma * (r[:, None] - self.centres) ** 2)
        cut = 0.5 * (torch.cos(math.pi * r / self.cutoff) + 1) * (r < self.cutoff)
        shifted = F.softplus(self.filter1(rbf)) - math.log(2.0)
        w = self.filter2(shifted) * cut[:, None]
        message = self.inp(x)[src] * w
        total = torch.zeros_like(x).index_add_(0, dst, message)
        return x + self.out2(F.softplus(self.out1(total)) - math.log(2.0))


@program
def schnet_filter_block():
    """SchNet's continuous-filter convolution on 83 atoms with 1400 neighbours, twice."""
    first, second = _Interaction().requires_grad_(False), _Interaction().requires_grad_(False)
    embedding = nn.Embedding(20, 48).requires_grad_(False)

    def f(z, pos, src, dst):
        x = embedding(z)
        x = first(x, pos, src, dst)
        x = second(x, pos, src, dst)
        return x, x.sum(0)

    src, dst = torch.randint(0, 83, (1400,)), torch.randint(0, 83, (1400,))
    dst = torch.where(src == dst, (dst + 1) % 83, dst)
    return f, (torch.randint(0, 20, (83,)), 3 * torch.rand(83, 3), src, dst)


@program
def behler_angular_descriptors():
    """Behler and Parrinello's radial and angular symmetry functions of three molecules with 19 atoms."""
    etas = torch.tensor([0.05, 0.2, 0.8, 1.6, 3.2])
    zetas = (1, 2, 4, 16)
    cutoff = 6.0

    def f(pos):
        n = pos.shape[1]
        d = pos[:, None, :, :] - pos[:, :, None, :]
        r2 = (d**2).sum(-1)
        eye = torch.eye(n, dtype=torch.bool)
        r = r2.masked_fill(eye, 1.0).sqrt()
        fc = (0.5 * torch.cos(math.pi * r / cutoff) + 0.5).masked_fill(eye | (r > cutoff), 0.0)
        g2 = (torch.exp(-etas * (r2[..., None])) * fc[..., None]).sum(2)
        cos = torch.einsum("bijx,bikx->bijk", d, d) / (r[:, :, :, None] * r[:, :, None, :])
        triple = fc[:, :, :, None] * fc[:, :, None, :] * fc[:, None, :, :]
        s2 = r2[:, :, :, None] + r2[:, :, None, :] + r2[:, None, :, :]
        radial = triple * torch.exp(-0.02 * s2)
        g4 = []
        for zeta in zetas:
            for lam in (-1.0, 1.0):
                angular = (0.5 * (1 + lam * cos)).clamp(min=0) ** zeta
                g4.append((angular * radial).sum((2, 3)))
        return torch.cat([g2, torch.stack(g4, dim=-1)], dim=-1)

    return f, (5 * torch.rand(3, 19, 3),)


# ------------------------------------------------------------------------------------- 17, 18: rendering


@program
def moller_trumbore_shade():
    """Rays of a 53x37 camera against 48 triangles, the nearest hit shaded by its interpolated normal."""
    light = F.normalize(torch.tensor([0.4, 0.8, -0.5]), dim=0)

    def f(origin, dirs, tri, normals):
        v0, v1, v2 = tri.unbind(1)
        e1, e2 = v1 - v0, v2 - v0
        h = torch.cross(
            dirs[:, None].expand(-1, tri.shape[0], -1), e2[None].expand(dirs.shape[0], -1, -1), dim=-1
        )
        det = (e1 * h).sum(-1)
        inv = torch.where(det.abs() > 1e-6, 1 / det, torch.zeros_like(det))
        s = origin - v0
        u = inv * (s * h).sum(-1)
        q = torch.cross(s, e1, dim=-1)
        v = inv * (dirs @ q.T)
        t = inv * (e2 * q).sum(-1)
        hit = (u >= 0) & (v >= 0) & (u + v <= 1) & (t > 1e-3)
        depth, index = torch.where(hit, t, float("inf")).min(dim=1)
        some = hit.any(dim=1)
        u, v = u.gather(1, index[:, None]), v.gather(1, index[:, None])
        corner = normals[index]
        n = (1 - u - v) * corner[:, 0] + u * corner[:, 1] + v * corner[:, 2]
        shade = 0.1 + 0.9 * (F.normalize(n, dim=-1) @ light).clamp(min=0)
        sky = 0.5 + 0.2 * dirs[:, 1]
        return torch.where(some, shade, sky).view(37, 53), torch.where(some, depth, 0.0).view(37, 53)

    y, x = torch.meshgrid(torch.linspace(1, -1, 37), torch.linspace(-1.4, 1.4, 53), indexing="ij")
    dirs = F.normalize(torch.stack([x, y, torch.full_like(x, 1.5)], -1).reshape(-1, 3), dim=-1)
    centre = torch.randn(48, 1, 3) * torch.tensor([1.5, 1.0, 0.7]) + torch.tensor([0.0, 0.0, 4.0])
    return f, (torch.zeros(3), dirs, centre + 0.7 * torch.randn(48, 3, 3), torch.randn(48, 3, 3))


@program
def height_to_normal_blinn():
    """A height map that wraps around, to a normal map, to Blinn-Phong under a point light and occlusion."""

    def f(height, albedo, light, eye):
        p = F.pad(height[None, None], (1, 1, 1, 1), mode="circular")[0, 0]
        dx = (p[1:-1, 2:] - p[1:-1, :-2]) * 2 + p[:-2, 2:] - p[:-2, :-2] + p[2:, 2:] - p[2:, :-2]
        dy = (p[2:, 1:-1] - p[:-2, 1:-1]) * 2 + p[2:, 2:] - p[:-2, 2:] + p[2:, :-2] - p[:-2, :-2]
        n = F.normalize(torch.stack([-dx, -dy, torch.ones_like(dx)], dim=-1), dim=-1)
        h, w = height.shape
        yy, xx = torch.meshgrid(torch.linspace(0, 1, h), torch.linspace(0, 1, w), indexing="ij")
        surface = torch.stack([xx, yy, 0.05 * height], dim=-1)
        to_light = light - surface
        distance2 = to_light.pow(2).sum(-1, keepdim=True)
        l_dir = to_light * distance2.rsqrt()
        v = F.normalize(eye - surface, dim=-1)
        half_way = F.normalize(l_dir + v, dim=-1)
        diffuse = (n * l_dir).sum(-1, keepdim=True).clamp(min=0)
        specular = (n * half_way).sum(-1, keepdim=True).clamp(min=0) ** 32
        occlusion = torch.sigmoid(8 * (height - F.avg_pool2d(height[None, None], 5, 1, 2)[0, 0]))[..., None]
        colour = occlusion * (albedo * (0.05 + diffuse / (1 + distance2)) + 0.3 * specular)
        return colour.clamp(0, 1), n * 0.5 + 0.5

    height = F.interpolate(torch.rand(1, 1, 17, 13), (311, 241), mode="bicubic")[0, 0]
    return f, (height, torch.rand(311, 241, 3), torch.tensor([0.3, 0.6, 0.8]), torch.tensor([0.5, 0.5, 2.0]))


# ----------------------------------------------------------------------------------- 19, 20: compositing


@program
def overlay_source_over_u8():
    """Overlay of one small RGBA image onto another, in integers, then source-over."""

    def div255(x):
        x = x + 128
        return (x + (x >> 8)) >> 8

    def f(top, bottom):
        a, b = top.to(torch.int32), bottom.to(torch.int32)
        ca, aa, cb = a[..., :3], a[..., 3:], b[..., :3]
        overlay = torch.where(cb < 128, div255(2 * ca * cb), 255 - div255(2 * (255 - ca) * (255 - cb)))
        colour = div255(overlay * aa + cb * (255 - aa))
        alpha = aa + div255(b[..., 3:] * (255 - aa))
        return torch.cat([colour, alpha], dim=-1).to(torch.uint8)

    top, bottom = torch.randint(0, 256, (2, 15, 21, 4), dtype=torch.uint8)
    return f, (top, bottom)


@training
def splat_2d_gaussians_fit():
    """Fits 40 coloured Gaussians to a 71x53 image: alpha compositing front to back, torch.func, one step."""
    y, x = torch.meshgrid(torch.linspace(0, 1, 71), torch.linspace(0, 1, 53), indexing="ij")
    grid = torch.stack([x, y], -1).reshape(-1, 1, 2)

    def loss(params, target):
        d = grid - params["mean"]
        c, s = torch.cos(params["angle"]), torch.sin(params["angle"])
        along = torch.stack([c * d[..., 0] + s * d[..., 1], c * d[..., 1] - s * d[..., 0]], -1)
        power = (along * torch.exp(-params["log_scale"])).square().sum(-1)
        alpha = torch.sigmoid(params["opacity"]) * torch.exp(-0.5 * power)
        through = torch.cumprod(1 - alpha + 1e-6, dim=1)
        weight = alpha * torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], dim=1)
        image = weight @ torch.sigmoid(params["colour"])
        return (image - target).square().mean() + 0.1 * (image - target).abs().mean()

    def step(params, target):
        grads, value = torch.func.grad_and_value(loss)(params, target)
        return value, {name: p - 0.5 * grads[name] for name, p in params.items()}

    params = {
        "mean": torch.rand(40, 2),
        "angle": torch.rand(40) * 3,
        "log_scale": torch.full((40, 2), -2.3) + 0.3 * torch.randn(40, 2),
        "opacity": torch.randn(40),
        "colour": torch.randn(40, 3),
    }
    target = torch.rand(71 * 53, 3)
    return step, (params, target), loss, ({k: v.clone().requires_grad_() for k, v in params.items()}, target)


# ------------------------------------------------------------------------------------- 21, 22: statistics


@program
def kde_leave_one_out():
    """Bandwidth of a kernel density by leave-one-out likelihood, and the density on a grid."""

    def f(x, bandwidths, grid):
        n = x.numel()
        scaled = (x[:, None] - x[None, :]) ** 2 / (-2.0)
        scaled = scaled.fill_diagonal_(float("-inf"))
        logits = scaled[None] / (bandwidths**2)[:, None, None]
        loo = torch.logsumexp(logits, dim=-1) - math.log(n - 1)
        score = (loo - torch.log(bandwidths)[:, None] - 0.5 * math.log(2 * math.pi)).mean(1)
        weight = torch.softmax(n * score, dim=0)
        h = (weight * bandwidths).sum()
        density = torch.exp(-0.5 * ((grid[:, None] - x) / h) ** 2).sum(1) / (n * h * math.sqrt(2 * math.pi))
        mass = torch.cumulative_trapezoid(density, grid)
        return score, h, density, mass

    x = torch.cat([torch.randn(131) - 1.5, 0.5 * torch.randn(120) + 2.0])
    return f, (x, torch.logspace(-1.2, 0.3, 15), torch.linspace(-5, 5, 101))


@program
def bernoulli_mixture_em():
    """Five rounds of EM for a mixture of seven products of Bernoullis over 81 pixels."""

    def f(x, log_pi, mu):
        for _ in range(5):
            mu = mu.clamp(1e-4, 1 - 1e-4)
            joint = x @ torch.log(mu).T + (1 - x) @ torch.log1p(-mu).T + log_pi
            evidence = torch.logsumexp(joint, dim=1, keepdim=True)
            r = torch.exp(joint - evidence)
            counts = r.sum(0) + 1e-2
            mu = (r.T @ x + 0.5e-2) / counts[:, None]
            log_pi = torch.log(counts) - torch.log(counts.sum())
        entropy = -(r * torch.log(r + 1e-9)).sum(1)
        return log_pi, mu, evidence.mean(), entropy

    prototypes = torch.rand(7, 81)
    x = torch.bernoulli(prototypes[torch.randint(0, 7, (407,))])
    return f, (x, torch.full((7,), -math.log(7.0)), 0.25 + 0.5 * torch.rand(7, 81))


# ----------------------------------------------------------------------------- 23, 24: nonparametric tests


@program
def bootstrap_t_quantiles():
    """Studentised bootstrap intervals of a mean, of a trimmed mean and of a correlation."""

    def f(x, y, index):
        n = x.shape[0]
        bx, by = x[index], y[index]
        mean, std = bx.mean(1), bx.std(1)
        t = (mean - x.mean()) / (std / math.sqrt(n))
        q = torch.quantile(t, torch.tensor([0.025, 0.975]))
        se = x.std() / math.sqrt(n)
        interval = torch.stack([x.mean() - q[1] * se, x.mean() - q[0] * se])
        cut = n // 10
        trimmed = bx.sort(dim=1).values[:, cut : n - cut].mean(1)
        zx, zy = bx - mean[:, None], by - by.mean(1, keepdim=True)
        corr = (zx * zy).sum(1) / (zx.norm(dim=1) * zy.norm(dim=1))
        fisher = torch.atanh(corr)
        return interval, trimmed.std(), torch.tanh(torch.quantile(fisher, torch.tensor([0.05, 0.5, 0.95])))

    x = torch.randn(173) + 0.3
    return f, (x, 0.6 * x + torch.randn(173), torch.randint(0, 173, (499, 173)))


@program
def ks_mannwhitney_batch():
    """Kolmogorov-Smirnov and rank-sum statistics of five pairs of samples, with histograms of both."""

    def f(x, y):
        n, m = x.shape[1], y.shape[1]
        xs, ys = x.sort(dim=1).values, y.sort(dim=1).values
        both = torch.cat([xs, ys], dim=1)
        fx = torch.searchsorted(xs, both, right=True) / n
        fy = torch.searchsorted(ys, both, right=True) / m
        ks = (fx - fy).abs().amax(1)
        u = torch.searchsorted(ys, xs).sum(1).float()
        z = (u - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
        p = torch.erfc(z.abs() / math.sqrt(2.0))
        edges = torch.linspace(-3, 3, 14)
        bins = torch.bucketize(both, edges)
        hist = torch.zeros(x.shape[0], 15).scatter_add_(1, bins, torch.ones_like(both))
        return ks, z, p, hist

    return f, (torch.randn(5, 51), torch.randn(5, 43) + torch.linspace(0, 1, 5)[:, None])


# --------------------------------------------------------------------------------------- 25, 26: geometry


@program
def smpl_skinning():
    """Axis angles by Rodrigues, a kinematic tree of 24 joints, linear blend skinning of 6890 vertices."""
    parents = [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]

    def rodrigues(v):
        angle = torch.norm(v + 1e-8, dim=1, keepdim=True)
        axis = v / angle
        rx, ry, rz = torch.split(axis, 1, dim=1)
        zeros = torch.zeros_like(rx)
        k = torch.cat([zeros, -rz, ry, rz, zeros, -rx, -ry, rx, zeros], dim=1).view(-1, 3, 3)
        sin, cos = torch.sin(angle)[:, None], torch.cos(angle)[:, None]
        return torch.eye(3)[None] + sin * k + (1 - cos) * torch.bmm(k, k)

    def f(pose, joints, verts, weights):
        b = pose.shape[0]
        rot = rodrigues(pose.reshape(-1, 3)).view(b, 24, 3, 3)
        rel = torch.cat([joints[:1], joints[1:] - joints[parents[1:]]])
        local = torch.cat([rot, rel[None, :, :, None].expand(b, -1, -1, -1)], dim=-1)
        local = torch.cat([local, torch.tensor([0.0, 0, 0, 1]).expand(b, 24, 1, 4)], dim=2)
        chain = [local[:, 0]]
        for i in range(1, 24):
            chain.append(torch.matmul(chain[parents[i]], local[:, i]))
        world = torch.stack(chain, dim=1)
        moved = world[..., :3, 3] - torch.einsum("bjxy,jy->bjx", world[..., :3, :3], joints)
        a = torch.cat([world[..., :3, :3], moved[..., None]], dim=-1)
        t = torch.einsum("vj,bjxy->bvxy", weights, a)
        return torch.matmul(t[..., :3], verts[None, ..., None])[..., 0] + t[..., 3], world[..., :3, 3]

    weights = torch.softmax(4 * torch.randn(6890, 24), dim=1)
    return f, (0.4 * torch.randn(3, 72), 0.3 * torch.randn(24, 3), torch.randn(6890, 3), weights)


@program
def polygon_winding_area():
    """Winding numbers and signed distances of 101 points to a polygon of 13 corners, area and centroid."""

    def f(points, poly):
        nxt = torch.roll(poly, -1, 0)
        cross = poly[:, 0] * nxt[:, 1] - nxt[:, 0] * poly[:, 1]
        area = cross.sum() / 2
        centroid = ((poly + nxt) * cross[:, None]).sum(0) / (6 * area)
        edge = nxt - poly
        px, py = points[:, 0:1], points[:, 1:2]
        side = edge[:, 0] * (py - poly[:, 1]) - (px - poly[:, 0]) * edge[:, 1]
        up = (poly[:, 1] <= py) & (nxt[:, 1] > py) & (side > 0)
        down = (poly[:, 1] > py) & (nxt[:, 1] <= py) & (side < 0)
        winding = up.sum(1) - down.sum(1)
        w = points[:, None] - poly
        t = ((w * edge).sum(-1) / (edge * edge).sum(-1)).clamp(0, 1)
        distance = (w - t[..., None] * edge).norm(dim=-1).min(dim=1).values
        inside = winding != 0
        return torch.where(inside, -distance, distance), winding, area, centroid, inside.sum()

    angle = torch.linspace(0, 2 * math.pi, 14)[:-1]
    radius = 1 + 0.4 * torch.rand(13)
    return f, (3 * torch.rand(101, 2) - 1.5, torch.stack([radius * angle.cos(), radius * angle.sin()], 1))


# ------------------------------------------------------------------------------------- 27, 28: point clouds


@training
def chamfer_laplacian_fit():
    """One Adam-less step of a mesh towards a point cloud: chamfer, edge length and Laplacian terms."""
    verts = F.normalize(torch.randn(231, 3), dim=-1)
    near = torch.cdist(verts, verts).topk(6, largest=False).indices[:, 1:]
    i, j = torch.arange(231).repeat_interleave(5), near.reshape(-1)
    degree = torch.bincount(i, minlength=231).float()

    def loss(offset, target):
        v = verts + offset
        d = (v[:, None] - target[None]).pow(2).sum(-1)
        chamfer = d.min(1).values.mean() + d.min(0).values.mean()
        edges = (v[i] - v[j]).pow(2).sum(-1).mean()
        mean = torch.zeros_like(v).index_add(0, i, v[j]) / degree[:, None]
        laplacian = (mean - v).norm(dim=-1).mean()
        return chamfer + 0.2 * edges + 0.1 * laplacian

    def step(offset, target):
        leaf = offset.detach().clone().requires_grad_(True)
        value = loss(leaf, target)
        value.backward()
        return value.detach(), offset - 10.0 * leaf.grad, leaf.grad.norm()

    offset, target = 0.01 * torch.randn(231, 3), 1.2 * F.normalize(torch.randn(307, 3), dim=-1)
    return step, (offset, target), loss, (offset.clone().requires_grad_(), target)


@program
def farthest_point_ball_group():
    """PointNet++'s set abstraction: farthest point sampling, neighbours within a ball, shared MLP, max."""
    mlp = nn.Sequential(nn.Conv2d(3 + 8, 24, 1), nn.ReLU(), nn.Conv2d(24, 40, 1), nn.ReLU()).requires_grad_(
        False
    )

    def gather(x, index):
        flat = index.reshape(index.shape[0], -1, 1).expand(-1, -1, x.shape[-1])
        return x.gather(1, flat).view(*index.shape, x.shape[-1])

    def f(xyz, feats):
        b, n, _ = xyz.shape
        distance = torch.full((b, n), 1e10)
        far = torch.zeros(b, dtype=torch.long)
        picked = []
        for _ in range(16):
            picked.append(far)
            centre = xyz[torch.arange(b), far].unsqueeze(1)
            distance = torch.minimum(distance, (xyz - centre).square().sum(-1))
            far = distance.argmax(-1)
        centres = gather(xyz, torch.stack(picked, dim=1))
        d2 = (centres[:, :, None] - xyz[:, None]).square().sum(-1)
        nearest, index = d2.topk(12, dim=-1, largest=False)
        index = torch.where(nearest > 0.3, index[..., :1], index)
        grouped = torch.cat([gather(xyz, index) - centres[:, :, None], gather(feats, index)], dim=-1)
        return centres, mlp(grouped.permute(0, 3, 1, 2)).amax(-1).transpose(1, 2)

    return f, (torch.rand(3, 517, 3), torch.randn(3, 517, 8))
