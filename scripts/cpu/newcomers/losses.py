"""Recommenders, losses, detection, optimizers."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from newcomers.corpus import program, training

# ------------------------------------------------------------------------------------ 29, 30: recommenders


@program
def deepfm_hashed_scores():
    """DeepFM on 13 raw ids hashed into one table: linear, factorised and deep parts."""
    fields, buckets, dim = 13, 5003, 10
    table, linear = (
        nn.Embedding(buckets, dim).requires_grad_(False),
        nn.Embedding(buckets, 1).requires_grad_(False),
    )
    deep = nn.Sequential(
        nn.Linear(fields * dim + 4, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    deep.requires_grad_(False)
    salt = torch.arange(fields) * 7919

    def f(ids, dense):
        h = ((ids ^ salt) * 2654435761) & 0xFFFFFFFF
        h = ((h >> 15) ^ h) % buckets
        e = table(h)
        first = linear(h).sum(1)
        square_of_sum = e.sum(1).square()
        sum_of_square = e.square().sum(1)
        second = 0.5 * (square_of_sum - sum_of_square).sum(1, keepdim=True)
        third = deep(torch.cat([e.flatten(1), torch.log1p(dense)], dim=1))
        return torch.sigmoid(0.1 * (first + second) + third).squeeze(-1)

    return f, (torch.randint(0, 10**6, (31, 13)), 10 * torch.rand(31, 4))


@training
def bpr_embedding_step():
    """Bayesian personalised ranking of triples, dense gradients of both tables, an Adagrad update."""
    users, items = nn.Embedding(401, 32), nn.Embedding(803, 32)
    bias = nn.Parameter(torch.zeros(803))
    params = [users.weight, items.weight, bias]
    state = [torch.full_like(p, 0.1) for p in params]

    def loss(u, pos, neg):
        eu, ep, en = users(u), items(pos), items(neg)
        margin = (eu * (ep - en)).sum(-1) + bias[pos] - bias[neg]
        reg = eu.square().sum(-1) + ep.square().sum(-1) + en.square().sum(-1)
        return -F.logsigmoid(margin).mean() + 1e-4 * reg.mean()

    def step(u, pos, neg):
        value = loss(u, pos, neg)
        value.backward()
        new = []
        with torch.no_grad():
            for p, s in zip(params, state):
                acc = s + p.grad**2
                new.append(p - 0.05 * p.grad / (acc.sqrt() + 1e-10))
                p.grad = None
        return (value.detach(), *new)

    return step, (torch.randint(0, 401, (257,)), *torch.randint(0, 803, (2, 257))), loss


# ----------------------------------------------------------------------------- 31, 32: segmentation losses


@training
def lovasz_hinge_sorted():
    """The Lovasz hinge per image: errors sorted, the Jaccard extension's gradient by cumulative sums."""

    def loss(logits, labels):
        total = []
        for score, label in zip(logits, labels):
            score, label = score.reshape(-1), label.reshape(-1).float()
            errors = 1.0 - score * (2.0 * label - 1.0)
            errors, order = torch.sort(errors, dim=0, descending=True)
            truth = label[order]
            count = truth.sum()
            intersection = count - truth.cumsum(0)
            union = count + (1 - truth).cumsum(0)
            jaccard = 1.0 - intersection / union
            jaccard = torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])
            total.append(torch.dot(F.relu(errors), jaccard))
        return torch.stack(total).mean()

    def step(logits, labels):
        value = loss(logits, labels)
        (grad,) = torch.autograd.grad(value, logits)
        return value.detach(), grad * logits[0].numel()

    blob = F.interpolate(torch.randn(3, 1, 6, 8), (37, 53), mode="bilinear")[:, 0]
    return step, ((blob + torch.randn(3, 37, 53)).requires_grad_(), (blob > 0.3).long()), loss


@program
def tversky_ignore_void():
    """Focal Tversky and Dice per class of a small crop, pixels without a label left out."""

    def f(logits, target):
        c = logits.shape[1]
        valid = target != 255
        probs = torch.softmax(logits, dim=1) * valid[:, None]
        onehot = (
            torch.zeros_like(probs).scatter_(1, target.masked_fill(~valid, 0)[:, None], 1.0) * valid[:, None]
        )
        tp = (probs * onehot).sum((0, 2, 3))
        fp = (probs * (1 - onehot)).sum((0, 2, 3))
        fn = ((1 - probs) * onehot).sum((0, 2, 3))
        tversky = (tp + 1) / (tp + 0.3 * fp + 0.7 * fn + 1)
        dice = (2 * tp + 1) / (2 * tp + fp + fn + 1)
        present = onehot.amax((0, 2, 3)) > 0
        focal = torch.where(present, (1 - tversky) ** 0.75, torch.zeros(c))
        return focal.sum() / present.sum(), dice, (probs.argmax(1) == target)[valid].float().mean()

    target = torch.randint(0, 4, (1, 13, 11))
    target[torch.rand(1, 13, 11) < 0.1] = 255
    return f, (torch.randn(1, 5, 13, 11), target)


# ---------------------------------------------------------------------------------- 33, 34: metric learning


@training
def supcon_two_views():
    """Supervised contrastive loss of two views through a projection head, gradients of the head."""
    head = nn.Sequential(nn.Linear(96, 96), nn.ReLU(inplace=True), nn.Linear(96, 40, bias=False))

    def loss(features, labels):
        b, views, _ = features.shape
        z = F.normalize(head(torch.cat(torch.unbind(features, dim=1), dim=0)), dim=1)
        mask = torch.eq(labels[:, None], labels[None, :]).float().repeat(views, views)
        logits = torch.div(z @ z.T, 0.1)
        logits = logits - logits.max(dim=1, keepdim=True).values.detach()
        not_self = torch.scatter(torch.ones_like(mask), 1, torch.arange(b * views).view(-1, 1), 0)
        mask = mask * not_self
        exp_logits = torch.exp(logits) * not_self
        log_prob = logits - torch.log(exp_logits.sum(1, keepdim=True))
        return -((mask * log_prob).sum(1) / mask.sum(1)).mean()

    def step(features, labels):
        value = loss(features, labels)
        value.backward()
        grads = [p.grad for p in head.parameters()]
        head.zero_grad(set_to_none=True)
        return (value.detach(), *grads)

    return step, (torch.randn(57, 2, 96), torch.randint(0, 9, (57,))), loss


@program
def arcface_logits():
    """ArcFace's margin on 17 embeddings of 53 identities, and the loss of each."""
    s, m = 30.0, 0.4
    cos_m, sin_m, threshold, mm = math.cos(m), math.sin(m), math.cos(math.pi - m), math.sin(math.pi - m) * m

    def f(x, weight, label):
        cosine = F.linear(F.normalize(x), F.normalize(weight))
        sine = torch.sqrt((1.0 - cosine**2).clamp(1e-7, 1))
        phi = cosine * cos_m - sine * sin_m
        phi = torch.where(cosine > threshold, phi, cosine - mm)
        one_hot = F.one_hot(label, weight.shape[0]).to(cosine.dtype)
        arc = s * (one_hot * phi + (1 - one_hot) * cosine)
        return arc, F.cross_entropy(arc, label, reduction="none")

    return f, (torch.randn(17, 64), torch.randn(53, 64), torch.randint(0, 53, (17,)))


# --------------------------------------------------------------------------------------- 35, 36: detection


@program
def retina_decode_matrix_nms():
    """Anchors of a 19x13 level, best 100 boxes decoded and clipped, IoU matrix, decayed scores."""
    ratios, scales = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([1.0, 2 ** (1 / 3), 2 ** (2 / 3)])

    def f(logits, deltas):
        h, w, stride = 19, 13, 16
        hs = (ratios.sqrt()[:, None] * scales).flatten() * 4 * stride
        ws = ((1 / ratios).sqrt()[:, None] * scales).flatten() * 4 * stride
        cy, cx = torch.meshgrid(
            (torch.arange(h) + 0.5) * stride, (torch.arange(w) + 0.5) * stride, indexing="ij"
        )
        anchors = torch.stack(torch.broadcast_tensors(cx[..., None], cy[..., None], ws, hs), -1).reshape(
            -1, 4
        )
        score, label = logits.reshape(-1, 5).max(dim=1)
        score, keep = score.topk(100)
        a, d, label = anchors[keep], deltas.reshape(-1, 4)[keep], label[keep]
        centre = a[:, :2] + d[:, :2] * a[:, 2:] * 0.1
        size = a[:, 2:] * torch.exp((d[:, 2:] * 0.2).clamp(max=4.13))
        boxes = torch.cat([centre - size / 2, centre + size / 2], 1)
        boxes = torch.minimum(boxes.clamp(min=0), torch.tensor([w, h, w, h]) * float(stride))
        lt = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
        rb = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
        inter = (rb - lt).clamp(min=0).prod(-1)
        area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
        iou = inter / (area[:, None] + area[None] - inter)
        iou = (iou * (label[:, None] == label[None])).triu(1)
        compensate = iou.amax(0)[:, None].expand_as(iou)
        decay = torch.exp(-2 * (iou**2 - compensate**2)).amin(0)
        return boxes / stride, torch.sigmoid(score) * decay, label

    return f, (torch.randn(19, 13, 45) - 1, torch.randn(19, 13, 36))


@program
def roi_align_gather():
    """RoIAlign written out: 29 regions, 7x7 bins of 2x2 samples, bilinear weights, gathers, mean."""
    out, ratio = 7, 2

    def f(feat, rois, batch):
        _n, c, h, w = feat.shape
        x1, y1, x2, y2 = (rois * 0.25 - 0.5).unbind(1)
        grid = (torch.arange(out * ratio) + 0.5) / (out * ratio)
        xs = x1[:, None] + grid * (x2 - x1)[:, None]
        ys = y1[:, None] + grid * (y2 - y1)[:, None]
        y, x = torch.broadcast_tensors(ys[:, :, None], xs[:, None, :])
        outside = (y < -1) | (y > h) | (x < -1) | (x > w)
        y, x = y.clamp(0, h - 1), x.clamp(0, w - 1)
        y0, x0 = y.floor().long(), x.floor().long()
        yb, xb = (y0 + 1).clamp(max=h - 1), (x0 + 1).clamp(max=w - 1)
        ly, lx = (y - y0)[..., None], (x - x0)[..., None]
        nhwc = feat.permute(0, 2, 3, 1)
        b = batch[:, None, None]
        top = nhwc[b, y0, x0] * (1 - lx) + nhwc[b, y0, xb] * lx
        bottom = nhwc[b, yb, x0] * (1 - lx) + nhwc[b, yb, xb] * lx
        value = (top * (1 - ly) + bottom * ly).masked_fill(outside[..., None], 0.0)
        k = rois.shape[0]
        return value.view(k, out, ratio, out, ratio, c).mean((2, 4)).permute(0, 3, 1, 2).contiguous()

    corner = torch.rand(29, 2) * 80
    rois = torch.cat([corner, corner + 10 + 70 * torch.rand(29, 2)], 1)
    return f, (torch.randn(2, 65, 37, 43), rois, torch.randint(0, 2, (29,)))


# -------------------------------------------------------------------------------------- 37, 38: optimisers


@program
def nadam_foreach_ema():
    """NAdam by the _foreach functions for 42 parameters of odd shapes, and an average of them."""
    shapes = [(129, 97), (129,), (255, 129), (255,), (64, 65, 3), (1,)] * 7
    b1, b2, lr, step = 0.9, 0.999, 2e-3, 10
    mu, mu_next = b1 * (1 - 0.5 * 0.96 ** (step * 0.004)), b1 * (1 - 0.5 * 0.96 ** ((step + 1) * 0.004))

    def f(params, grads, avg, sq, ema):
        params, grads, avg, sq, ema = ([t.clone() for t in ts] for ts in (params, grads, avg, sq, ema))
        torch._foreach_mul_(params, 1 - lr * 0.01)
        torch._foreach_lerp_(avg, grads, 1 - b1)
        torch._foreach_mul_(sq, b2)
        torch._foreach_addcmul_(sq, grads, grads, 1 - b2)
        denom = torch._foreach_sqrt(sq)
        torch._foreach_div_(denom, math.sqrt(1 - b2**step))
        torch._foreach_add_(denom, 1e-8)
        torch._foreach_addcdiv_(params, grads, denom, -lr * (1 - mu) / (1 - 0.9**step))
        torch._foreach_addcdiv_(params, avg, denom, -lr * mu_next / (1 - 0.9 ** (step + 1)))
        torch._foreach_lerp_(ema, params, 0.001)
        return (*params, *avg, *sq, *ema)

    args = [[torch.randn(s) for s in shapes] for _ in range(5)]
    args[3] = [t.square() + 0.01 for t in args[3]]
    return f, tuple(args)


@training
def sam_two_pass():
    """Sharpness-aware minimisation of an MLP: climb to the worst neighbour, descend with its gradient."""
    net = nn.Sequential(nn.Linear(23, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 5))
    start = {name: p.detach().clone() for name, p in net.named_parameters()}

    def loss(params, x, y):
        logits = torch.func.functional_call(net, params, (x,))
        return F.cross_entropy(logits, y, label_smoothing=0.05)

    def step(params, x, y):
        grads, value = torch.func.grad_and_value(loss)(params, x, y)
        norm = torch.stack([g.norm() for g in grads.values()]).norm()
        worst = {k: p + 0.05 * grads[k] / (norm + 1e-12) for k, p in params.items()}
        sharp, peak = torch.func.grad_and_value(loss)(worst, x, y)
        new = {k: p - 0.1 * (sharp[k] + 5e-4 * p) for k, p in params.items()}
        return value, peak, new

    x, y = torch.randn(67, 23), torch.randint(0, 5, (67,))
    return step, (start, x, y), loss, ({k: p.clone().requires_grad_() for k, p in start.items()}, x, y)


# ----------------------------------------------------------------------------- 39, 40: second-order methods


@program
def shampoo_newton_roots():
    """A Shampoo step of one matrix: statistics, inverse fourth roots by coupled Newton, grafted norm."""

    def inverse_fourth_root(a):
        n = a.shape[0]
        eye = torch.eye(n)
        a = a + 0.1 * (a.diagonal().mean()) * eye
        z = 5.0 / (2 * a.norm())
        m, h = a * z, eye * z**0.25
        for _ in range(10):
            t = (5.0 * eye - m) / 4.0
            t2 = t @ t
            m = t2 @ t2 @ m
            h = h @ t
        return h

    def f(w, g, left, right, momentum):
        left = 0.95 * left + 0.05 * (g @ g.T)
        right = 0.95 * right + 0.05 * (g.T @ g)
        update = inverse_fourth_root(left) @ g @ inverse_fourth_root(right)
        update = update * (g.norm() / (update.norm() + 1e-12))
        momentum = 0.9 * momentum + update
        return w - 0.01 * (momentum + 1e-2 * w), left, right, momentum

    w, g, old = torch.randn(61, 45), torch.randn(61, 45), torch.randn(61, 45)
    return f, (w, g, old @ old.T / 45, old.T @ old / 61, torch.zeros(61, 45))


@program
def lbfgs_two_loop():
    """The two-loop recursion with three pairs, and one step of the length that curvature allows."""

    def f(x, grad, s, y):
        rho = 1.0 / (s * y).sum(1)
        q = grad
        alphas = []
        for i in range(s.shape[0] - 1, -1, -1):
            a = rho[i] * torch.dot(s[i], q)
            alphas.append(a)
            q = q - a * y[i]
        gamma = torch.dot(s[-1], y[-1]) / torch.dot(y[-1], y[-1])
        r = gamma * q
        for i in range(s.shape[0]):
            beta = rho[i] * torch.dot(y[i], r)
            r = r + s[i] * (alphas[-1 - i] - beta)
        slope = torch.dot(r, grad)
        r = torch.where(slope > 0, r, grad)
        length = torch.clamp(1.0 / r.abs().sum(), max=1.0)
        return x - length * r, slope

    s = torch.randn(3, 301)
    return f, (
        torch.randn(301),
        torch.randn(301),
        s,
        s * (0.5 + torch.rand(301)) + 0.05 * torch.randn(3, 301),
    )
