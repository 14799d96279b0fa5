"""What products and the exchange beside them cost, in the two places that the exchange can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod

from starc.analysis.cost import gemm_cost
from starc.core.collectives.cost import choices
from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.core.kernel_schedules.fused_schedules import FusedProblem, choose_fused
from starc.core.kernel_schedules.gemm_problem import GemmProblem
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.link_bytes import sent_bytes
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.targets.target import Target


class ProductForm(StrEnum):
    """``scatter``: product, then reduce-scatter (K split over the inner level). ``gather``:
    all-gather, then product (N split over it)."""

    SCATTER = "scatter"
    GATHER = "gather"

    @property
    def other(self) -> ProductForm:
        return ProductForm.GATHER if self is ProductForm.SCATTER else ProductForm.SCATTER

    @property
    def words(self) -> str:
        """For remarks."""
        is_scatter = self is ProductForm.SCATTER
        return "reduce-scatter behind" if is_scatter else "all-gather in front"


@dataclass(frozen=True)
class ExchangeCost:
    """What a group of products costs in one form: seconds of the products, seconds of the exchange,
    seconds of both in one kernel (``None`` where they stay two), bytes that a device sends and the
    bytes of the buffer that it needs whole."""

    products_s: float
    exchange_s: float
    fused_s: float | None
    sent_bytes: int
    buffer_bytes: int
    outer_s: float = 0.0
    """Of the reduction over outer levels that is left behind the products."""
    whole_s: float | None = None
    """Of one kernel that does this reduction, too."""

    @property
    def seconds(self) -> float:
        separate = self.products_s + self.exchange_s
        both = separate if self.fused_s is None else min(separate, self.fused_s)
        both += self.outer_s
        return both if self.whole_s is None else min(both, self.whole_s)

    def __str__(self) -> str:
        fused = "" if self.fused_s is None else f", in one kernel {self.fused_s * 1e6:.1f} us"
        if self.outer_s:
            fused += f", outer all-reduce {self.outer_s * 1e6:.1f} us"
        if self.whole_s is not None:
            fused += f", all in one kernel {self.whole_s * 1e6:.1f} us"
        return (
            f"{self.seconds * 1e6:.1f} us (products {self.products_s * 1e6:.1f} us, "
            f"{self.sent_bytes:,} bytes sent in {self.exchange_s * 1e6:.1f} us{fused})"
        )


@dataclass(frozen=True)
class ProductGroup:
    """Products of one input, as they are without the inner level: ``rows`` is [batch, query] of a
    device, ``k`` and ``columns`` what the outer levels leave of the loops. ``width`` is the bytes
    of an element of the input, ``partial_width`` those of a partial sum."""

    rows: tuple[int, int]
    k: int
    columns: tuple[int, ...]
    dtype: str
    width: int
    partial_width: int

    def cost(
        self,
        form: ProductForm,
        mesh: Mesh,
        inner: tuple[AxisRef, ...],
        target: Target,
        *,
        fused: bool = True,
        outer: tuple[AxisRef, ...] = (),
    ) -> ExchangeCost:
        """The cost in one form, with the inner level's part of K or N on each device. The
        exchanges of a group count as one, by the algorithm and transport that are fastest for
        it. With ``fused`` products may pull their input and push their results themselves. Results
        that are partial sums over ``outer`` are all-reduced over it: by a launch behind the
        products, or, where nothing else is behind them, by the products themselves."""
        rates = DeviceRates.of(target)
        problem, products = self._products(form, mesh.refs_size(inner), rates)
        operation, payload = self._exchange(form)
        exchange = choices(operation, payload, mesh, inner, target)[0].time.seconds
        sent = sum(sent_bytes(mesh, operation, inner, payload).values())
        exchange += rates.gap_s
        both = self._fused(form, problem, mesh, inner, rates) if fused else None
        outer_s, whole = 0.0, None
        if outer:
            size = mesh.refs_size(inner)
            left = prod(self.rows) * sum(-(-n // size) for n in self.columns) * self.partial_width
            found = choices(CollectiveKind.ALL_REDUCE, left, mesh, outer, target)
            outer_s = found[0].time.seconds + rates.gap_s
            if fused and form is ProductForm.GATHER:
                whole = self._fused_whole(problem, mesh, inner, outer, rates)
        return ExchangeCost(products, exchange, both, sent, payload, outer_s, whole)

    def _products(
        self, form: ProductForm, size: int, rates: DeviceRates
    ) -> tuple[GemmProblem, float]:
        """The products of a device where the inner level has ``size``, and their seconds."""
        if form is ProductForm.GATHER:
            columns = tuple(-(-n // size) for n in self.columns)
            problem = GemmProblem(*self.rows, columns, self.k, self.dtype, self.width)
            return problem, gemm_cost(problem, rates).seconds
        k = -(-self.k // size)
        problem = GemmProblem(*self.rows, self.columns, k, self.dtype, self.width)
        # Partial sums that are wider than the results of the estimate.
        wider = max(self.partial_width - self.width, 0)
        seconds = gemm_cost(problem, rates).seconds
        return problem, seconds + prod(self.rows) * sum(self.columns) * wider / rates.hbm_rate

    def _exchange(self, form: ProductForm) -> tuple[CollectiveKind, int]:
        """What is exchanged over the inner level, and its bytes."""
        m = prod(self.rows)
        if form is ProductForm.SCATTER:
            return CollectiveKind.REDUCE_SCATTER, m * sum(self.columns) * self.partial_width
        return CollectiveKind.ALL_GATHER, m * self.k * self.width

    def _fused(
        self,
        form: ProductForm,
        gemm: GemmProblem,
        mesh: Mesh,
        inner: tuple[AxisRef, ...],
        rates: DeviceRates,
    ) -> float | None:
        """Seconds of products that exchange what they need or give themselves, if they can."""
        size, scatters = mesh.refs_size(inner), form is ProductForm.SCATTER
        link = rates.links.get(mesh.link_class(inner) or "")
        if link is None:
            return None
        return _fastest(
            FusedProblem(
                gemm=gemm,
                pull_ranks=0 if scatters else size,
                push_ranks=size if scatters else 0,
                scattered=tuple(-(-n // size) if scatters else 0 for n in gemm.columns),
                partial_bytes=self.partial_width,
                link_rate=link.bytes_per_s * link.per_device,
                link_latency_s=link.latency_s,
            ),
            rates,
        )

    def _fused_whole(
        self,
        gemm: GemmProblem,
        mesh: Mesh,
        inner: tuple[AxisRef, ...],
        outer: tuple[AxisRef, ...],
        rates: DeviceRates,
    ) -> float | None:
        """The same of products that pull over ``inner`` and send what they give to all over
        ``outer``."""
        link = rates.links.get(mesh.link_class(inner) or "")
        far = rates.links.get(mesh.link_class(outer) or "")
        if link is None or far is None:
            return None
        return _fastest(
            FusedProblem(
                gemm=gemm,
                pull_ranks=mesh.refs_size(inner),
                push_ranks=mesh.refs_size(outer),
                scattered=gemm.columns,
                partial_bytes=self.partial_width,
                link_rate=link.bytes_per_s * link.per_device,
                link_latency_s=link.latency_s,
                push_rate=far.bytes_per_s * far.per_device,
                push_latency_s=far.latency_s,
                to_all=(True,) * len(gemm.columns),
            ),
            rates,
        )


def _fastest(problem: FusedProblem, rates: DeviceRates) -> float | None:
    found = choose_fused(problem, rates)
    return found[0].seconds + rates.prologue("gemm") if found else None
