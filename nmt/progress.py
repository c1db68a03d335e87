"""What a person sees on standard error while a model trains. No TensorFlow."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

# Without a terminal a bar cannot move: lines are printed instead, this many seconds apart.
LINE_SECONDS = 15.0


@contextlib.contextmanager
def training_progress() -> Iterator[Callable]:
    """Yield a function that shows a training Report: a live bar on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LinePrinter(console)
        return
    columns = (BarColumn(bar_width=50), TaskProgressColumn(), TimeElapsedColumn())
    with _BarAboveText(*columns, console=console, refresh_per_second=4) as progress:
        task = progress.add_task("tracing the training step ...", total=1.0)
        yield lambda report: progress.update(
            task, completed=report.done or 0.0, description=describe(report)
        )


@contextlib.contextmanager
def translation_progress(total: int) -> Iterator[Callable]:
    """Yield a function that shows how many of `total` lines are translated."""
    console = Console(stderr=True)
    if not console.is_terminal:
        started, printed = time.monotonic(), [time.monotonic()]

        def show_line(done):
            now = time.monotonic()
            if now - printed[0] >= LINE_SECONDS:
                printed[0] = now
                speed = done / (now - started)
                left = _clock((total - done) / speed / 60)
                console.print(
                    f"{done:,} of {total:,} lines  {speed:,.0f} lines/s  {left} left",
                    highlight=False,
                )

        yield show_line
        return
    columns = (BarColumn(bar_width=40), TaskProgressColumn(show_speed=True))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


class _BarAboveText(Progress):
    """A bar with the description below: beside it, a terminal of 80 columns would cut it off."""

    def get_renderables(self):
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.description)


def describe(report) -> str:
    """Return a training Report as one line."""
    line = (
        f"step {report.step:,}  epoch {report.epoch:.1f}  loss {report.loss:.3f}  "
        f"token accuracy {report.token_accuracy:.1%}  "
        f"rate {report.learning_rate:.1e}  {report.tokens_per_second:,.0f} tokens/s"
    )
    if report.done:
        left = report.minutes * (1 - report.done) / report.done
        line += f"  {_clock(left)} left"
    return line


def _clock(minutes):
    seconds = round(60 * max(0.0, minutes))
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


class _LinePrinter:
    def __init__(self, console):
        self._console = console
        self._printed = 0.0

    def __call__(self, report):
        now = time.monotonic()
        if now - self._printed >= LINE_SECONDS:
            self._printed = now
            self._console.print(describe(report), highlight=False, soft_wrap=True)
