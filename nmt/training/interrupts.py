"""Ctrl-C and SIGTERM, asked for at a moment when nothing is half done."""

import signal
import threading


class Interrupts:
    """While the block runs, a first Ctrl-C or SIGTERM only sets `asked`; a second one interrupts.

    So a training stops between two updates, and what it saves is whole. Schedulers such as
    Kubernetes send SIGTERM and wait for a while before they kill.
    """

    asked = False

    def __enter__(self):
        # Python takes signals in its main thread only.
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
