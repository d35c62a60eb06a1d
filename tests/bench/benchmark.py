"""What one benchmark is: a question, the work, who does it and how it is counted."""

import dataclasses
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A benchmark; each stands in a module of its name as `BENCHMARK`.

    Workers import it in every contender's environment, so its module imports numpy and the
    standard library only; frameworks inside `prepare`.

    Args:
        name: of the module.
        title: what is measured.
        unit: of the figure.
        contenders: modules of `tests.bench.contenders`, ours first.
        arguments: `{name: default}`, integers or strings, as `prepare` takes them.
        prepare: `prepare(contender, **arguments)` makes everything ready and returns the work, a
            function that does it once and returns the figure.
        threads: that every contender may compute on.
        pairs: rounds that count. One more goes first and does not, unless this is 1: then the
            work cannot be repeated in one process.
        less_is_better: whether the smaller figure wins.
    """

    name: str
    title: str
    unit: str
    contenders: tuple
    arguments: dict
    prepare: Callable
    threads: int = 1
    pairs: int = 5
    less_is_better: bool = False

    def parse(self, texts):
        """The values of `arguments`, from a command line that may give the first few."""
        if len(texts) > len(self.arguments):
            raise SystemExit(f"{self.name} takes {list(self.arguments)}. Received: {texts}.")
        values = dict(self.arguments)
        for name, text in zip(values, texts):
            values[name] = int(float(text)) if isinstance(values[name], int) else text
        return values
