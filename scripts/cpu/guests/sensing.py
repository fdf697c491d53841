"""Robotics and filters, speech, detection."""

import math

import torch
import torch.nn.functional as F

from guests.corpus import program, training

# ------------------------------------------------------------------------------- 37, 38: robotics, filtering


@training
def dh_chain_reach_step():
    """Poses of 51 six-joint arms by Denavit-Hartenberg chains, pulled to targets within their limits."""

    def pose(theta, d, a, twist):
        ct, st, ca, sa = theta.cos(), theta.sin(), twist.cos(), twist.sin()
        zero, one = torch.zeros_like(theta), torch.ones_like(theta)
        rows = [
            torch.stack([ct, -st * ca, st * sa, a * ct], dim=-1),
            torch.stack([st, ct * ca, -ct * sa, a * st], dim=-1),
            torch.stack([zero, sa * one, ca * one, d * one], dim=-1),
            torch.stack([zero, zero, zero, one], dim=-1),
        ]
        links = torch.stack(rows, dim=-2)
        chain = links[:, 0]
        for i in range(1, theta.shape[1]):
            chain = chain @ links[:, i]
        return chain[:, :3, :3], chain[:, :3, 3]

    def loss(theta, d, a, twist, position, rotation, limit):
        turned, reached = pose(theta, d, a, twist)
        cosine = ((turned.transpose(1, 2) @ rotation).diagonal(dim1=1, dim2=2).sum(1) - 1) / 2
        over = F.relu(theta.abs() - limit)
        distance = (reached - position).square().sum(1)
        return (distance + 0.3 * (1 - cosine) + 10 * over.square().sum(1)).mean()

    def step(theta, *task):
        leaf = theta.detach().clone().requires_grad_()
        value = loss(leaf, *task)
        value.backward()
        move = leaf.grad / (leaf.grad.norm(dim=1, keepdim=True) + 1e-3)
        wrapped = torch.remainder(theta.detach() - 0.1 * move + math.pi, 2 * math.pi) - math.pi
        return value.detach(), leaf.grad, wrapped

    d = torch.tensor([0.34, 0.0, 0.4, 0.0, 0.4, 0.13])
    a = torch.tensor([0.0, 0.42, 0.02, 0.0, 0.0, 0.08])
    twist = torch.tensor([-1.0, 0.0, 1.0, -1.0, 1.0, 0.0]) * math.pi / 2
    theta, goal = torch.randn(51, 6), torch.randn(51, 6)
    rotation, position = pose(goal, d, a, twist)
    return step, (theta.requires_grad_(), d, a, twist, position, rotation, torch.full((6,), 2.7)), loss


@program
def ekf_range_bearing_update():
    """An extended filter's correction of five robots by ranges and bearings, gated, in Joseph's form."""
    noise = torch.diag(torch.tensor([0.04, 0.01]))

    def f(mean, cov, beacon, seen):
        dx, dy = (beacon - mean[:, :2]).unbind(1)
        r = torch.hypot(dx, dy)
        gap = seen - torch.stack([r, torch.atan2(dy, dx) - mean[:, 2]], dim=1)
        gap[:, 1] = torch.remainder(gap[:, 1] + math.pi, 2 * math.pi) - math.pi
        h = torch.zeros(mean.shape[0], 2, 3)
        h[:, 0, 0], h[:, 0, 1] = -dx / r, -dy / r
        h[:, 1, 0], h[:, 1, 1], h[:, 1, 2] = dy / r**2, -dx / r**2, -1.0
        cross = cov @ h.mT
        inverse = torch.linalg.inv(h @ cross + noise)
        distance = torch.einsum("bi,bij,bj->b", gap, inverse, gap)
        gain = cross @ inverse * (distance < 9.21)[:, None, None]
        kept = torch.eye(3) - gain @ h
        mean = mean + torch.einsum("bij,bj->bi", gain, gap)
        return mean, kept @ cov @ kept.mT + gain @ noise @ gain.mT, distance

    root = torch.randn(5, 3, 3) / 3
    seen = torch.stack([4 + torch.rand(5), torch.randn(5)], dim=1)
    return f, (torch.randn(5, 3), root @ root.mT + 0.1 * torch.eye(3), 4 * torch.randn(5, 2), seen)


# ------------------------------------------------------------------------------------------ 39, 40: speech


@training
def rnnt_lattice_step():
    """A transducer's loss: joint network, alphas frame by frame along cumulated labels, gradients."""

    def loss(encoded, predicted, weight, labels, frames, lengths):
        joint = torch.tanh(encoded[:, :, None] + predicted[:, None])
        logp = F.linear(joint, weight).log_softmax(-1)
        blank = logp[..., 0]
        index = labels[:, None, :, None].expand(-1, logp.shape[1], -1, 1)
        emit = logp[:, :, :-1].gather(-1, index).squeeze(-1)
        along = F.pad(emit.cumsum(-1), (1, 0))
        alpha = along[:, 0]
        rows = [alpha]
        for t in range(1, logp.shape[1]):
            alpha = along[:, t] + torch.logcumsumexp(alpha + blank[:, t - 1] - along[:, t], dim=-1)
            rows.append(alpha)
        batch = torch.arange(labels.shape[0])
        final = torch.stack(rows, 1)[batch, frames - 1, lengths] + blank[batch, frames - 1, lengths]
        return -(final / lengths).mean()

    def step(encoded, predicted, weight, *rest):
        value = loss(encoded, predicted, weight, *rest)
        return (value.detach(), *torch.autograd.grad(value, (encoded, predicted, weight)))

    leaves = [torch.randn(3, 25, 40) / 2, torch.randn(3, 8, 40) / 2, torch.randn(61, 40) / 6]
    labels = torch.randint(1, 61, (3, 7))
    rest = (labels, torch.tensor([25, 19, 22]), torch.tensor([7, 4, 6]))
    return step, (*[leaf.requires_grad_() for leaf in leaves], *rest), loss


@program
def lpc_levinson_envelope():
    """Linear prediction of windowed frames by Levinson's recursion: reflections, envelopes, residuals."""
    order = 12

    def f(wave):
        emphasised = torch.cat([wave[:, :1], wave[:, 1:] - 0.97 * wave[:, :-1]], dim=1)
        frames = emphasised.unfold(1, 320, 160) * torch.hamming_window(320, periodic=False)
        power = torch.fft.rfft(frames, n=1024).abs().square()
        r = torch.fft.irfft(power)[..., : order + 1]
        r = r / (r[..., :1] + 1e-9)
        a = F.pad(torch.ones_like(r[..., :1]), (0, order))
        error, reflections = r[..., 0] + 1e-6, []
        for i in range(1, order + 1):
            k = -(a[..., :i] * r[..., 1 : i + 1].flip(-1)).sum(-1) / error
            reflections.append(k)
            a = a + k[..., None] * F.pad(a[..., :i].flip(-1), (1, order - i))
            error = error * (1 - k * k)
        envelope = 10 * torch.log10(error[..., None] / torch.fft.rfft(a, n=256).abs().square())
        padded = F.pad(frames, (order, 0))
        residual = (padded.unfold(-1, order + 1, 1).flip(-1) * a[..., None, :]).sum(-1)
        return torch.stack(reflections, -1), envelope, residual.square().mean(-1)

    t = torch.arange(4037) / 16000
    pulse = (t * torch.tensor([[110.0], [187.0]])) % 1.0
    return f, (torch.exp(-8 * pulse) * torch.sin(90 * pulse) + 0.01 * torch.randn(2, 4037),)


# --------------------------------------------------------------------------------------- 41, 42: detection


@program
def fcos_assign_targets():
    """FCOS's targets of an image: points within boxes of their level's range, the smallest box wins."""
    points, ranges = [], []
    for stride, (rows, cols), (low, high) in zip((16, 32), ((5, 7), (3, 4)), ((0, 64), (64, 1e6))):
        grid = torch.cartesian_prod(torch.arange(rows), torch.arange(cols)).flip(1)
        points.append(grid * stride + stride // 2)
        ranges.append(torch.tensor([[low, high]]).expand(rows * cols, 2))
    points, ranges = torch.cat(points).float(), torch.cat(ranges).float()

    def f(boxes, classes):
        sides = torch.cat([points[:, None] - boxes[:, :2], boxes[:, 2:] - points[:, None]], dim=-1)
        reach = sides.amax(-1)
        fits = (reach >= ranges[:, :1]) & (reach < ranges[:, 1:]) & (sides.amin(-1) > 0)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        least, which = torch.where(fits, area, 1e8).min(dim=1)
        labels = torch.where(least < 1e8, classes[which], 80)
        target = sides[torch.arange(len(points)), which].clamp(min=0.01)
        low, high = target.unflatten(1, (2, 2)).aminmax(dim=1)
        return labels, target, (low / high).prod(1).sqrt()

    corner = torch.rand(7, 2) * 70
    return f, (torch.cat([corner, corner + 8 + torch.rand(7, 2) * 60], 1), torch.randint(80, (7,)))


@program
def detr_cost_greedy_match():
    """DETR's costs of class, L1 and generalised IoU, matched greedily, the loss of what is matched."""

    def corners(boxes):
        centre, size = boxes.chunk(2, dim=-1)
        return torch.cat([centre - size / 2, centre + size / 2], dim=-1)

    def giou(a, b):
        a, b = a[:, :, None], b[:, None]
        overlap = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
        hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
        meet = overlap.prod(-1)
        union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - meet
        return meet / union - (hull - union) / hull

    def f(logits, boxes, labels, wanted):
        batch, queries, _ = logits.shape
        count = labels.shape[1]
        chance = logits.softmax(-1).gather(2, labels[:, None].expand(-1, queries, -1))
        overlap = giou(corners(boxes), corners(wanted))
        cost = 5 * torch.cdist(boxes, wanted, p=1) - chance - 2 * overlap
        match = torch.zeros(batch, count, dtype=torch.long)
        rows, open_cost = torch.arange(batch), cost.clone()
        for _ in range(count):
            flat = open_cost.flatten(1).argmin(1)
            query, target = flat // count, flat % count
            match[rows, target] = query
            open_cost[rows, query] = float("inf")
            open_cost[rows, :, target] = float("inf")
        taken = boxes.gather(1, match[..., None].expand(-1, -1, 4))
        classes = torch.full((batch, queries), logits.shape[-1] - 1).scatter(1, match, labels)
        weight = torch.ones(logits.shape[-1])
        weight[-1] = 0.1
        ce = F.cross_entropy(logits.transpose(1, 2), classes, weight)
        paired = overlap.gather(1, match[:, None]).squeeze(1)
        return match, ce, F.l1_loss(taken, wanted), 1 - paired.mean()

    boxes = torch.cat([torch.rand(3, 60, 2), torch.rand(3, 60, 2) * 0.4 + 0.05], -1)
    wanted = torch.cat([torch.rand(3, 9, 2), torch.rand(3, 9, 2) * 0.4 + 0.05], -1)
    return f, (torch.randn(3, 60, 22), boxes, torch.randint(21, (3, 9)), wanted)
