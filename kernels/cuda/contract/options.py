"""Options of a contraction's kernel."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base.target import Target
from graphc.kernels.cuda.contract.split_k import BY_LAUNCH, SplitKOptions


@dataclass(frozen=True)
class ContractOptions:
    """How `lower_contract` may compute a contraction.

    Attributes:
        splits_products: tensor cores may make a product of float32 of three products of tf32.
        warp_groups: warp groups may multiply (wgmma, compute capability 9.0).
        bulk_copies: warp groups may multiply what TMA copies.
        order: the order of sums of another kernel that this one keeps to; "" for any.
        looped: the kernel is launched in the iterations of a loop, so that blocks had better own
            their rows.
        split_k: what may add the parts of k besides a second launch.
        tensor_cores: tensor cores may multiply.
        concurrent: how many contractions like it the device computes at once.
    """

    splits_products: bool = False
    warp_groups: bool = False
    bulk_copies: bool = False
    order: str = ""
    looped: bool = False
    split_k: SplitKOptions = BY_LAUNCH
    tensor_cores: bool = True
    concurrent: int = 1

    @staticmethod
    def of(target: Target, order: str = "", looped: bool = False) -> ContractOptions:
        """What a target offers."""
        return ContractOptions(
            target.splits_products,
            target.multiplies_groups,
            target.copies_in_bulk,
            order,
            looped,
            SplitKOptions(target.draws_tickets, target.adds_in_clusters),
            target.tensor_cores,
        )
