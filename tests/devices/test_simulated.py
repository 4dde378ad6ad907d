"""The simulated device: the CPU's numbers to the bit, and what CUDA refuses is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.devices.module import NAME
from tests.devices.simulated import simulated, waits


@pytest.fixture(autouse=True)
def there() -> Iterator[None]:
    with simulated():
        yield


def made(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "a sum": lambda x: x + made(2, 3),
    "a sum in place": lambda x: made(2, 3).add_(x),
    "a product": lambda x: x @ made(3, 2),
    "a list": lambda x: torch.cat([x, made(2, 3)]),
    "an index to gather by": lambda x: x.gather(1, torch.zeros(2, 1, dtype=torch.long)),
    "an index to scatter by": lambda x: x.scatter_add_(1, torch.zeros(2, 1, dtype=torch.long), x * 2),
    "tokens": lambda x: torch.nn.functional.embedding(torch.tensor([0]), x),
    "an index on the device into the CPU's": lambda x: made(2, 3)[x[0].long()],
    "a place to search": lambda x: torch.searchsorted(x, made(2, 1)),
    "a mask": lambda x: x.masked_fill_(made(2, 3) > 1, 0.0),
    "a place for the result": lambda x: torch.mul(x, 2, out=made(2, 3)),
    "a choice": lambda x: torch.where(x > 1, x, made(2, 3)),
    "a random generator": lambda x: torch.rand(3, generator=torch.Generator(), device=NAME),
    "a device without a number": lambda x: torch.get_device_module(NAME).set_device(NAME),
    "an array": lambda x: x.numpy(),
    "a scalar written to": lambda x: torch.tensor(1.0).add_(x[0, 0]),
    "a list of scalars": lambda x: torch._foreach_add_([torch.tensor(1.0)], [x[0, 0]]),
    "counts of steps": lambda x: torch._fused_adamw_(
        [x.clone()], [x], [x.clone()], [x.clone()], [], [torch.tensor(1.0)],
        lr=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    ),
}  # fmt: skip

WORDS = r"same device|generator|numpy|at least two devices|specified index"


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_on_the_other_device_is_refused(what: str) -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError), match=WORDS):
        REFUSED[what](made(2, 3).to(NAME))


def test_what_cuda_takes_from_the_cpu_is_taken() -> None:
    x, two = made(2, 3), torch.tensor(2.0)
    there = x.to(NAME)
    for found, wanted in [
        (there * two, x * two),
        (two - there, two - x),
        (there[torch.tensor([1])], x[torch.tensor([1])]),
        (there[x > 2], x[x > 2]),
        (torch.where(there > 1, there, two), torch.where(x > 1, x, two)),
        (there.masked_fill(there > 1, two), x.masked_fill(x > 1, two)),
    ]:
        assert found.device.type == NAME
        assert torch.equal(found.cpu(), wanted)


def test_views_share_their_memory_and_what_grows_is_kept() -> None:
    there = made(2, 3).to(NAME)
    there[:, 1].mul_(10)
    there.t()[2] = 7
    assert there.tolist() == [[0, 10, 7], [3, 40, 7]]
    assert there.untyped_storage().data_ptr() == there.view(-1)[3:].untyped_storage().data_ptr()
    grown = torch.arange(4, device=NAME)
    assert torch.cat((grown, grown)).tolist() == [0, 1, 2, 3] * 2


def test_gradients_are_those_of_the_cpu() -> None:
    draw = torch.Generator().manual_seed(1)
    values = [torch.randn(2, 4, 5, 8, generator=draw) for _ in range(3)]
    found = []
    for device in ("cpu", NAME):
        leaves = [value.to(device, copy=True).requires_grad_() for value in values]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        out = torch.nn.functional.silu(torch.nn.functional.rms_norm(out, (8,)))
        out.square().mean().backward()
        found.append([out.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves if leaf.grad is not None)])
    assert len(found[1]) == 4
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_what_is_waited_for_is_counted() -> None:
    there = made(2, 3).to(NAME)
    there.sum().clamp(1, 2)
    assert +waits == {"copy from the CPU": 1}
    there.sum().item()
    there.cpu()
    there[there > 1] = 0.0
    assert sorted((+waits).values()) == [1] * 4
