"""Robotics, geometry, rendering and array processing."""

import torch
import torch.nn.functional as F

from strangers.corpus import program

C0 = 0.28209479177387814
C1 = 0.4886025119029199
C2 = [1.0925484305920792, -1.0925484305920792, 0.31539156525252005, -1.0925484305920792, 0.5462742152960396]


@program
def splat_sh_colour_and_covariance():
    """3D Gaussian splatting: degree-two SH colours, covariances, projected conics."""

    def quat_to_rot(q):
        q = F.normalize(q, dim=-1)
        w, x, y, z = q.unbind(-1)
        r = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
        r += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
        r += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
        return torch.stack(r, -1).view(-1, 3, 3)

    def eval_sh(sh, d):
        x, y, z = d[:, 0:1], d[:, 1:2], d[:, 2:3]
        res = C0 * sh[..., 0] - C1 * y * sh[..., 1] + C1 * z * sh[..., 2] - C1 * x * sh[..., 3]
        res = res + C2[0] * x * y * sh[..., 4] + C2[1] * y * z * sh[..., 5]
        res = res + C2[2] * (2 * z * z - x * x - y * y) * sh[..., 6]
        return res + C2[3] * x * z * sh[..., 7] + C2[4] * (x * x - y * y) * sh[..., 8]

    def f(xyz, log_scale, quat, sh, campos, view, focal):
        rgb = (eval_sh(sh, F.normalize(xyz - campos, dim=-1)) + 0.5).clamp_min(0.0)
        m = quat_to_rot(quat) * log_scale.exp()[:, None, :]
        cov = m @ m.transpose(1, 2)
        t = xyz @ view[:3, :3].T + view[:3, 3]
        tx, ty, tz = t.unbind(-1)
        zero = torch.zeros_like(tz)
        j = torch.stack([focal / tz, zero, -focal * tx / tz**2, zero, focal / tz, -focal * ty / tz**2], -1)
        j = j.view(-1, 2, 3) @ view[:3, :3]
        cov2 = j @ cov @ j.transpose(1, 2)
        a, b, c = cov2[:, 0, 0] + 0.3, cov2[:, 0, 1], cov2[:, 1, 1] + 0.3
        det = a * c - b * b
        return rgb, torch.stack([c / det, -b / det, a / det], -1), tz

    n = 27000
    view = torch.eye(4)
    view[2, 3] = 6.0
    args = torch.randn(n, 3), torch.rand(n, 3) - 3, torch.randn(n, 4), 0.3 * torch.randn(n, 3, 9)
    return f, (*args, torch.tensor([0.0, 0.0, -6.0]), view, torch.tensor(300.0))


@program
def ray_aabb_slabs():
    """Slab test of every ray against every box, the nearest entry and its box."""

    def f(origin, direction, lo, hi):
        inv = 1.0 / direction
        t0 = (lo[None] - origin[:, None]) * inv[:, None]
        t1 = (hi[None] - origin[:, None]) * inv[:, None]
        near = torch.minimum(t0, t1).amax(-1)
        far = torch.maximum(t0, t1).amin(-1)
        hit = (far >= near.clamp(min=0)) & (far > 0)
        t = torch.where(hit, near.clamp(min=0), torch.full_like(near, 1e4))
        dist, box = t.min(dim=1)
        return dist, torch.where(hit.any(1), box, torch.full_like(box, -1))

    lo = torch.rand(7, 3) * 4 - 2
    d = F.normalize(torch.randn(32, 3), dim=-1)
    return f, (torch.randn(32, 3) * 3, d, lo, lo + torch.rand(7, 3) + 0.1)


@program
def so3_exp_log_residual():
    """Rodrigues' exponential and logarithm in a pose-graph residual with a Huber weight."""

    def hat(w):
        z = torch.zeros_like(w[..., 0])
        x, y, s = w.unbind(-1)
        return torch.stack([z, -s, y, s, z, -x, -y, x, z], -1).unflatten(-1, (3, 3))

    def exp(w):
        th2 = (w * w).sum(-1)[..., None, None] + 1e-12
        th = th2.sqrt()
        h = hat(w)
        return torch.eye(3) + torch.sin(th) / th * h + (1 - torch.cos(th)) / th2 * (h @ h)

    def log(r):
        cos = (r.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
        th = torch.acos(cos.clamp(-0.9999, 0.9999))
        a = r - r.transpose(-1, -2)
        v = torch.stack([a[..., 2, 1], a[..., 0, 2], a[..., 1, 0]], -1)
        return (th / (2 * torch.sin(th)))[..., None] * v

    def f(wi, wj, wij, delta=0.3):
        r = log(exp(wij).transpose(-1, -2) @ exp(wi).transpose(-1, -2) @ exp(wj))
        n = r.norm(dim=-1)
        weight = torch.where(n <= delta, torch.ones_like(n), delta / n)
        return r, (weight * n * n).sum()

    wi, wj = 0.5 * torch.randn(2, 40, 3)
    return f, (wi, wj, wj - wi + 0.1)


@program
def icp_point_to_plane_kabsch():
    """An ICP iteration: nearest neighbours, trimmed weights, Kabsch alignment, point-to-plane residual."""

    def f(src, dst, normals):
        d2 = torch.cdist(src, dst, compute_mode="donot_use_mm_for_euclid_dist").pow(2)
        best, idx = d2.min(dim=1)
        q, n = dst[idx], normals[idx]
        w = 1.0 / (1.0 + best / best.mean())
        w = (w / w.sum())[:, None]
        mu_p, mu_q = (w * src).sum(0), (w * q).sum(0)
        cov = (w * (src - mu_p)).T @ (q - mu_q)
        u, _, vt = torch.linalg.svd(cov)
        sign = torch.stack([torch.ones(()), torch.ones(()), torch.linalg.det(u @ vt).sign()])
        rot = vt.T @ torch.diag(sign) @ u.T
        t = mu_q - rot @ mu_p
        moved = src @ rot.T + t
        return rot, t, ((moved - q) * n).sum(-1).abs().mean(), best

    dst = torch.randn(1009, 3) * torch.tensor([1.0, 2.0, 3.0])
    src = dst[torch.randperm(1009)[:601]] + 0.02 * torch.randn(601, 3) + 0.05
    return f, (src, dst, F.normalize(torch.randn(1009, 3), dim=-1))


@program
def mvdr_beamformer():
    """Masks to spatial covariances and MVDR weights per frequency, applied to the mixture (complex64)."""

    def f(spec, mask):
        noise_mask = 1 - mask
        psd_s = torch.einsum("cft,dft,ft->fcd", spec, spec.conj(), mask.to(spec.dtype))
        psd_n = torch.einsum("cft,dft,ft->fcd", spec, spec.conj(), noise_mask.to(spec.dtype))
        psd_s = psd_s / mask.sum(-1)[:, None, None]
        psd_n = psd_n / noise_mask.sum(-1)[:, None, None]
        power = psd_n.diagonal(dim1=1, dim2=2).real.mean(-1)
        psd_n = psd_n + 1e-2 * torch.eye(spec.shape[0]) * power[:, None, None]
        num = torch.linalg.solve(psd_n, psd_s)
        w = num[..., 0] / (num.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True) + 1e-8)
        return torch.einsum("fc,cft->ft", w.conj(), spec)

    spec = torch.randn(4, 129, 100, dtype=torch.complex64)
    return f, (spec, torch.rand(129, 100) * 0.8 + 0.1)
