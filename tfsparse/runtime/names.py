"""The registry of names that ranks must agree on."""

import re

_used = set()


def unique_name(base):
    """`base` the first time it is asked for, then `base.2`, `base.3`, ...

    Collectives meet by name, and Horovod refuses two of one name in flight. Ranks get equal
    names because they build the same things in the same order.

    Args:
        base: characters that TensorFlow does not allow in names become underscores.
    """
    base = re.sub(r"[^A-Za-z0-9_.-]", "_", base)
    name, number = base, 1
    while name in _used:
        number += 1
        name = f"{base}.{number}"
    _used.add(name)
    return name
