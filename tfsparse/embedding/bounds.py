"""The check that numbers which users write down are numbers, and not too large to be meant."""

import numbers

# With rates and row gradients within this, rows stay finite for 1e14 steps of every rule. The
# core knows it too (core/table.cc).
LARGEST = 1e12


def require_between(owner, field, low, high, wanted):
    """Raises a ValueError unless `low <= owner.field <= high`; NaN is not.

    Args:
        owner: a config object; its class and `repr` are in the message.
        field: name of the attribute.
        low: the least number allowed.
        high: the greatest number allowed.
        wanted: the limits in words.
    """
    value = getattr(owner, field)
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (is_number and low <= value <= high):
        raise ValueError(f"{type(owner).__name__} needs {field} {wanted}. Received: {owner}.")
