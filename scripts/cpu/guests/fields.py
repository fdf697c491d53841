"""Weather grids, physics, chemistry, image processing."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from guests.corpus import program, training

# ------------------------------------------------------------------------------------------ 9, 10: weather


@program
def shallow_water_c_grid():
    """Twelve forward-backward steps of the rotating shallow-water equations on a staggered periodic grid."""
    g, dx, dt, drag = 9.81, 1.0e4, 20.0, 1e-5

    def f(h, u, v, coriolis, floor):
        def east(a):
            return torch.roll(a, -1, dims=1)

        def west(a):
            return torch.roll(a, 1, dims=1)

        def north(a):
            return torch.roll(a, -1, dims=0)

        def south(a):
            return torch.roll(a, 1, dims=0)

        for _ in range(12):
            depth = h - floor
            flux_u = u * 0.5 * (depth + west(depth))
            flux_v = v * 0.5 * (depth + south(depth))
            h = h - dt / dx * (east(flux_u) - flux_u + north(flux_v) - flux_v)
            v_at_u = 0.25 * (v + north(v) + west(v) + west(north(v)))
            advect_u = u * (east(u) - west(u)) + v_at_u * (north(u) - south(u))
            u = u + dt * (coriolis * v_at_u - g * (h - west(h)) / dx - advect_u / (2 * dx) - drag * u)
            u_at_v = 0.25 * (u + east(u) + south(u) + south(east(u)))
            advect_v = u_at_v * (east(v) - west(v)) + v * (north(v) - south(v))
            v = v - dt * (coriolis * u_at_v + g * (h - south(h)) / dx + advect_v / (2 * dx) + drag * v)
        vorticity = (v - west(v) - u + south(u)) / dx + coriolis
        return h, u, v, vorticity / (h - floor)

    y, x = torch.meshgrid(torch.linspace(-1, 1, 61), torch.linspace(-1, 1, 83), indexing="ij")
    h = 100 + 2 * torch.exp(-20 * (x**2 + (y - 0.2) ** 2))
    u, v = 0.3 * torch.randn(61, 83), 0.3 * torch.randn(61, 83)
    return f, (h, u, v, 1e-4 + 2e-5 * y, 10 * torch.rand(61, 83))


@program
def semi_lagrangian_tracers():
    """Humidity and ozone back along the winds: wrapped longitudes, clamped poles, area-weighted means."""

    def f(tracers, u, v, lat):
        rows, cols = u.shape
        radians = torch.deg2rad(lat)[:, None]
        scale = 1 / torch.cos(radians).clamp(min=0.1)
        back_x = torch.remainder(torch.arange(cols) - u * scale, cols)
        back_y = (torch.arange(rows)[:, None] - v).clamp(0, rows - 1.001)
        x0, y0 = back_x.floor(), back_y.floor()
        wx, wy = back_x - x0, back_y - y0
        left, low = x0.long() % cols, y0.long()
        right, high = (left + 1) % cols, low + 1
        below = torch.lerp(tracers[:, low, left], tracers[:, low, right], wx)
        above = torch.lerp(tracers[:, high, left], tracers[:, high, right], wx)
        moved = torch.lerp(below, above, wy)
        area = torch.cos(radians).expand(rows, cols)
        before, after = (tracers * area).sum((1, 2)), (moved * area).sum((1, 2))
        moved = moved * (before / after)[:, None, None]
        return moved

    lat = torch.linspace(-85, 85, 13)
    return f, (torch.rand(2, 13, 22) + 0.1, torch.randn(13, 22), torch.randn(13, 22), lat)


# ------------------------------------------------------------------------------------------ 11, 12: physics


@program
def mpm_grid_transfer():
    """A fluid's particles to the grid and back by quadratic splines, affine velocities (MLS-MPM), twice."""
    n, dt, dx = 47, 2e-4, 1 / 47
    volume = mass = (dx * 0.5) ** 2

    def f(x, v, affine, jacobian):
        for _ in range(2):
            base = (x / dx - 0.5).floor()
            fx = x / dx - base
            w = torch.stack([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2])
            stress = -dt * 4 * 400 * volume * (jacobian - 1) / dx**2
            carried = torch.eye(2) * stress[:, None, None] + mass * affine
            cells, shares, offsets = [], [], []
            for i in range(3):
                for j in range(3):
                    cell = (base + torch.tensor([i, j])).long()
                    cells.append(cell[:, 0] * n + cell[:, 1])
                    shares.append(w[i, :, 0] * w[j, :, 1])
                    offsets.append((torch.tensor([i, j]) - fx) * dx)
            grid = torch.zeros(n * n, 3)
            for cell, share, offset in zip(cells, shares, offsets):
                momentum = mass * v + torch.einsum("pij,pj->pi", carried, offset)
                carried_mass = torch.full_like(momentum[:, :1], mass)
                grid.index_add_(0, cell, share[:, None] * torch.cat([momentum, carried_mass], 1))
            speed = torch.where(grid[:, 2:] > 0, grid[:, :2] / grid[:, 2:].clamp(min=1e-12), 0.0)
            speed = speed.view(n, n, 2) - torch.tensor([0.0, dt * 9.8])
            speed[:3, :, 0].clamp_(min=0)
            speed[-3:, :, 0].clamp_(max=0)
            speed[:, :3, 1].clamp_(min=0)
            speed[:, -3:, 1].clamp_(max=0)
            speed = speed.view(-1, 2)
            v, affine = torch.zeros_like(v), torch.zeros_like(affine)
            for cell, share, offset in zip(cells, shares, offsets):
                pulled = share[:, None] * speed[cell]
                v += pulled
                affine += 4 / dx**2 * pulled[:, :, None] * offset[:, None, :]
            x = x + dt * v
            jacobian = jacobian * (1 + dt * affine.diagonal(dim1=1, dim2=2).sum(1))
        return x, v, affine, jacobian

    x = torch.rand(1777, 2) * 0.4 + 0.2
    return f, (x, torch.randn(1777, 2), torch.randn(1777, 2, 2), 1 + 0.01 * torch.randn(1777))


@training
def wave_adjoint_velocity():
    """The gradient of receivers' misfits by the speeds, back through 24 leapfrog steps with a sponge."""

    def loss(speed, wavelet, observed, damping, source, receivers):
        now, before = torch.zeros_like(speed), torch.zeros_like(speed)
        courant = speed.square() * 0.2
        seen = []
        for amplitude in wavelet:
            p = F.pad(now, (1, 1, 1, 1))
            laplace = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * now
            after = (2 * now - before * damping + courant * laplace + amplitude * source) * damping
            before, now = now, after
            seen.append(now[6, receivers])
        return 0.5 * (torch.stack(seen) - observed).square().sum() + 1e-4 * speed.diff(dim=0).abs().sum()

    def step(speed, *survey):
        speed = speed.detach().requires_grad_()
        value = loss(speed, *survey)
        value.backward()
        slope = speed.grad
        return value.detach(), slope, (speed.detach() - 0.1 * slope / slope.abs().max()).clamp(0.5, 1.5)

    t = torch.arange(24.0) / 6 - 1.2
    wavelet = (1 - 2 * (math.pi * t) ** 2) * torch.exp(-((math.pi * t) ** 2))
    speed = 1 + 0.1 * torch.rand(57, 73)
    y, x = torch.meshgrid(torch.arange(57.0), torch.arange(73.0), indexing="ij")
    edge = torch.minimum(torch.minimum(y, 56 - y), torch.minimum(x, 72 - x))
    damping = torch.exp(-((0.02 * (10 - edge).clamp(min=0)) ** 2))
    source = torch.exp(-0.5 * ((y - 14) ** 2 + (x - 36) ** 2))
    observed = 0.1 * torch.randn(24, 13)
    return step, (speed.requires_grad_(), wavelet, observed, damping, source, torch.arange(12, 64, 4)), loss


# ---------------------------------------------------------------------------------------- 13, 14: chemistry


@training
def ewald_energy_forces():
    """Ewald's sum of point charges in a periodic box: both spaces and the self term, forces, float64."""
    box, eta = 9.5, 0.55
    k = torch.cartesian_prod(*[torch.arange(-4, 5)] * 3)
    k = k[(k.square().sum(1) > 0) & (k.square().sum(1) <= 17)].double() * (2 * math.pi / box)
    damped = torch.exp(-k.square().sum(1) / (4 * eta**2)) / k.square().sum(1)

    def loss(position, charge):
        n = len(charge)
        delta = position[:, None] - position[None]
        delta = delta - box * torch.round(delta / box)
        itself = torch.eye(n, dtype=torch.bool)
        r = delta.square().sum(-1).masked_fill(itself, 1.0).sqrt()
        pair = charge[:, None] * charge[None] * torch.erfc(eta * r) / r
        near = pair.masked_fill(itself | (r > box / 2), 0.0).sum() / 2
        phase = position @ k.T
        structure = (torch.polar(torch.ones_like(phase), phase) * charge[:, None]).sum(0)
        far = 2 * math.pi / box**3 * (damped * structure.abs().square()).sum()
        return near + far - eta / math.sqrt(math.pi) * charge.square().sum()

    def step(position, charge):
        energy = loss(position, charge)
        (slope,) = torch.autograd.grad(energy, position)
        return energy.detach(), -slope, (slope * position.detach()).sum()

    lattice = torch.cartesian_prod(*[torch.arange(4)] * 3).double() * box / 4
    charge = (1 - 2 * (lattice.mul(4 / box).round().sum(1) % 2))[:54]
    position = lattice[:54] + 0.2 * torch.randn(54, 3, dtype=torch.float64)
    return step, (position.requires_grad_(), charge), loss


class PainnBlock(nn.Module):
    """PaiNN's message and update of scalars and vectors."""

    def __init__(self, width=32, waves=12, cutoff=5.0):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("n", torch.arange(1, waves + 1) * math.pi / cutoff)
        self.filter = nn.Linear(waves, 3 * width)
        self.phi = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3 * width))
        self.mix = nn.Linear(width, 2 * width, bias=False)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, 3 * width))

    def forward(self, s, v, position, source, target):
        vector = position[target] - position[source]
        r = vector.norm(dim=1, keepdim=True)
        fade = 0.5 * (1 + torch.cos(math.pi * r / self.cutoff)) * (r < self.cutoff)
        weights = self.filter(torch.sin(r * self.n) / r) * fade
        ds, dv, dr = (self.phi(s)[source] * weights).chunk(3, dim=1)
        moved = dv[:, None] * v[source] + dr[:, None] * (vector / r)[:, :, None]
        s = s.index_add(0, target, ds)
        v = v.index_add(0, target, moved)
        left, right = self.mix(v).chunk(2, dim=-1)
        a_ss, a_sv, a_vv = self.update(torch.cat([s, right.norm(dim=1)], 1)).chunk(3, dim=1)
        return s + a_ss + a_sv * (left * right).sum(1), v + a_vv[:, None] * left


@program
def painn_message_block():
    """Two PaiNN blocks with a sine basis and a cosine cutoff, atoms' energies by molecule."""
    blocks = nn.ModuleList([PainnBlock(), PainnBlock()]).eval().requires_grad_(False)

    def f(s, v, position, source, target, molecule):
        for block in blocks:
            s, v = block(s, v, position, source, target)
        energy = torch.zeros(4).scatter_add_(0, molecule, s.mean(1))
        return energy, v.norm(dim=1)

    source, target = (torch.rand(41, 41) < 0.25).fill_diagonal_(False).nonzero(as_tuple=True)
    molecule = torch.arange(41) // 11
    return f, (torch.randn(41, 32), torch.zeros(41, 3, 32), 2 * torch.randn(41, 3), source, target, molecule)


# --------------------------------------------------------------------------------- 15, 16: image processing


@program
def guided_filter_dehaze():
    """Dark channel, airlight of the haziest pixels, transmission refined by a guided filter, haze removed."""

    def box(a, r):
        a = F.pad(a, (r, r, r, r), mode="reflect")
        sums = F.pad(a.cumsum(-1).cumsum(-2), (1, 0, 1, 0))
        d = 2 * r + 1
        return (sums[..., d:, d:] - sums[..., :-d, d:] - sums[..., d:, :-d] + sums[..., :-d, :-d]) / d**2

    def dark(image):
        return -F.max_pool2d(-image.amin(0, keepdim=True)[None], 9, stride=1, padding=4)[0]

    def f(image):
        haze = dark(image).flatten()
        worst = haze.topk(haze.numel() // 1000 + 3).indices
        air = image.flatten(1)[:, worst].mean(1).view(3, 1, 1)
        rough = 1 - 0.95 * dark(image / air)
        gray = (image * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0, keepdim=True)
        stack = torch.stack([gray, rough, gray * rough, gray * gray])
        mean_i, mean_p, mean_ip, mean_ii = box(stack.double(), 11).float()
        a = (mean_ip - mean_i * mean_p) / (mean_ii - mean_i**2 + 1e-3)
        b = mean_p - a * mean_i
        smooth_a, smooth_b = box(torch.stack([a, b]).double(), 11).float()
        t = (smooth_a * gray + smooth_b).clamp(0.1, 1)
        return ((image - air) / t + air).clamp(0, 1), t

    depth = torch.linspace(0.2, 0.9, 97).view(1, 97, 1)
    return f, (torch.rand(3, 97, 131) * depth + 0.8 * (1 - depth),)


@program
def clahe_tiles_interpolated():
    """CLAHE of 8-bit images: clipped histograms of 4 by 5 tiles, their lookup tables blended bilinearly."""
    rows, cols, th, tw = 4, 5, 22, 26

    def f(images):
        count = images.shape[0]
        height, width = images.shape[1:]
        pixels = images.long()
        ty, tx = torch.arange(height) // th, torch.arange(width) // tw
        tile = ty[:, None] * cols + tx[None]
        slot = (torch.arange(count).view(-1, 1, 1) * rows * cols + tile) * 256 + pixels
        hist = torch.bincount(slot.flatten(), minlength=count * rows * cols * 256).view(
            count, rows * cols, 256
        )
        limit = int(2.5 * th * tw / 256)
        excess = (hist - limit).clamp(min=0).sum(-1, keepdim=True)
        hist = hist.clamp(max=limit) + excess // 256
        lut = (hist.cumsum(-1) * (255.0 / (th * tw))).clamp(max=255)
        gy = ((torch.arange(height) + 0.5) / th - 0.5).clamp(0, rows - 1)
        gx = ((torch.arange(width) + 0.5) / tw - 0.5).clamp(0, cols - 1)
        y0, x0 = gy.long().clamp(max=rows - 2)[:, None], gx.long().clamp(max=cols - 2)[None]
        wy, wx = gy[:, None] - y0, gx[None] - x0
        table = lut.view(count, -1)

        def look(y, x):
            return table.gather(1, ((y * cols + x) * 256 + pixels).flatten(1)).view_as(pixels)

        top = torch.lerp(look(y0, x0), look(y0, x0 + 1), wx.expand(pixels.shape))
        bottom = torch.lerp(look(y0 + 1, x0), look(y0 + 1, x0 + 1), wx.expand(pixels.shape))
        return torch.lerp(top, bottom, wy) / 255

    return f, ((60 + 25 * torch.randn(3, 88, 130)).clamp(0, 255).to(torch.uint8),)
