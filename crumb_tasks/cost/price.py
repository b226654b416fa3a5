"""Money: only from a price that the user names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crumb_tasks.cost.axes import Cost, Quantity, known, unknown
from crumb_tasks.errors import UsageError

_NO_PRICE = "no price was given (--price-per-hour or --price-per-million-tokens)"


@dataclass(frozen=True)
class Price:
    """What the user pays, in any currency.

    Attributes:
        per_hour: For the machine.
        per_million_tokens: For what a model reads, as providers of models ask.

    Raises:
        UsageError: Both are given, or one is no price.
    """

    per_hour: float | None = None
    per_million_tokens: float | None = None

    def __post_init__(self) -> None:
        """Check."""
        if self.per_hour is not None and self.per_million_tokens is not None:
            raise UsageError("--price-per-hour and --price-per-million-tokens are two ways to pay; give one of them")
        for price in (self.per_hour, self.per_million_tokens):
            if price is not None and not 0 < price < float("inf"):
                raise UsageError(f"a price is above 0, not {price}")

    def to_dict(self) -> dict[str, float]:
        """Return what was named, as a cost's record has it; nothing where no price was."""
        named = {"price_per_hour": self.per_hour, "price_per_million_tokens": self.per_million_tokens}
        return {key: price for key, price in named.items() if price is not None}

    def applied(self, cost: Cost) -> Cost:
        """Return ``cost`` at this price, instead of the one that it has."""
        how = {key: value for key, value in cost.how.items() if not key.startswith("price_")}
        return replace(cost, values={**cost.values, **self.money(cost.values)}, how={**how, **self.to_dict()})

    def money(self, values: Mapping[str, Quantity]) -> dict[str, Quantity]:
        """Return the quantities of money.

        A machine that is paid by the hour is taken to be busy: it answers queries in batches all the time.

        Args:
            values: What else is known.
        """
        keys = ("money_per_1000_queries", "money_encoding")
        if self.per_hour is not None:
            rate, seconds = values["batch_queries_per_second"], values["encoding_seconds"]
            amounts = (
                None if rate.value is None else self.per_hour / 3600 * 1000 / rate.value,
                None if seconds.value is None else self.per_hour / 3600 * seconds.value,
            )
            reasons = (rate.reason, seconds.reason)
        elif self.per_million_tokens is not None:
            tokens, speed, seconds = (
                values[key] for key in ("tokens_per_query", "tokens_per_second", "encoding_seconds")
            )
            amounts = (
                None if tokens.value is None else self.per_million_tokens * tokens.value / 1000,
                None
                if speed.value is None or seconds.value is None
                else self.per_million_tokens * speed.value * seconds.value / 1e6,
            )
            reasons = (tokens.reason, speed.reason or seconds.reason)
        else:
            return {key: unknown(_NO_PRICE) for key in keys}
        return {
            key: unknown(reason) if amount is None else known(amount)
            for key, amount, reason in zip(keys, amounts, reasons, strict=True)
        }
