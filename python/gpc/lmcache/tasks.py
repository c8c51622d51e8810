# SPDX-License-Identifier: Apache-2.0
# Tests: t/python/lmcache-adapter.t
"""Tasks of one kind.  Each answer is taken once; a descriptor signals that there are answers."""


class Tasks:
    def __init__(self, notifier, lock):
        self.notifier, self.lock, self.answers = notifier, lock, {}

    def fileno(self):
        return self.notifier.fileno()

    def finish(self, task, answer):
        with self.lock:
            self.answers[task] = answer
        self.notifier.notify()

    def take(self, task):
        with self.lock:
            return self.answers.pop(task, None)

    def take_all(self):
        with self.lock:
            out, self.answers = self.answers, {}
        return out

    def close(self):
        self.notifier.close()
