"""Switching plans after failures, at the same call on all ranks of a group."""

import hashlib
from collections.abc import Sequence
from typing import Any

from ....errors import ColloptError
from ..calls.arguments import import_torch
from .plan_cache import PlanCache, told_failures

FAILURE_CALLS = 16  # of which one compares what ranks are told


class FailureWatch:
    """What the ranks of a group are told of failures, compared over `wrapped`, whose calls run in order."""

    def __init__(self, cache: PlanCache, wrapped: Any, devices: Sequence[str]) -> None:
        self._cache, self._wrapped = cache, wrapped
        self._device = "cpu" if "cpu" in devices else devices[0]
        self._calls, self._told = 0, ""

    def follow(self) -> str:
        """Switch plans once all ranks are told the same; return why not, or nothing.  All ranks make the same calls."""
        self._calls += 1
        if self._calls % FAILURE_CALLS != 1:
            return ""
        told = told_failures()
        digest = int.from_bytes(hashlib.sha256(told.encode()).digest()[:7], "big")
        problem = ""
        if not self._is_same(digest):
            problem = "ranks are told of different failures"
        elif told != self._told:
            self._told = told
            try:
                self._cache.switch(told)
            except ColloptError as error:
                problem = str(error)
        return problem and f"{problem}; the plans stay those for {self._cache.failure}"

    def _is_same(self, digest: int) -> bool:
        """Whether all ranks have this number: then it is the least of all, and the most."""
        torch, dist = import_torch()
        least_and_most = torch.tensor([digest, -digest], dtype=torch.int64, device=self._device)
        opts = dist.AllreduceOptions()
        opts.reduceOp = dist.ReduceOp.MIN
        self._wrapped.allreduce([least_and_most], opts).wait()
        return bool(least_and_most.tolist() == [digest, -digest])
