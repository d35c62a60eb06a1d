"""The registry of names that ranks must agree on."""

import collections

_uses = collections.Counter()


def unique_name(base):
    """`base` the first time, then `base#2`, `base#3`, ...

    Collectives meet by name, and Horovod refuses two of one name in flight. Ranks get equal
    names because they build the same things in the same order.
    """
    _uses[base] += 1
    return base if _uses[base] == 1 else f"{base}#{_uses[base]}"
