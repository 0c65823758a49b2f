"""A bounded memory of what was made."""

import threading
from collections import OrderedDict
from typing import Any


class Recent(OrderedDict):
    """What was used last, up to a number; the rest is forgotten, and its machine code with it."""

    def __init__(self, most: int):
        super().__init__()
        self.most, self.lock = most, threading.Lock()

    def find(self, key: Any) -> Any:
        """The value, or None."""
        with self.lock:
            if key in self:
                self.move_to_end(key)
            return self.get(key)

    def keep(self, key: Any, value: Any) -> Any:
        """The value that is there now: an earlier one, where two threads made it at once."""
        with self.lock:
            value = self.setdefault(key, value)
            self.move_to_end(key)
            while len(self) > self.most:
                self.popitem(last=False)
            return value
