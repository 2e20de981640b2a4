# SPDX-License-Identifier: Apache-2.0
"""What else runs on this machine while a benchmark measures."""
import time


def processor_times():
    with open("/proc/stat") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def wait_until_idle(limit_seconds=20.0):
    """Waits for other programs to end, so that they do not spoil a window; False when they go on."""
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        before = processor_times()
        time.sleep(0.4)
        spent = [after - first for first, after in zip(before, processor_times())]
        if spent[3] + spent[4] >= 0.9 * sum(spent):
            return True
    return False


class Theft:
    """What the host of a virtual machine takes of its processors for others in the meantime (`steal` in /proc/stat)."""
    ALLOWED = 0.02  # of all processor time; less is the noise of the clock's ticks

    def __init__(self):
        self.before = processor_times()

    def spoils(self):
        spent = [after - first for first, after in zip(self.before, processor_times())]
        return spent[7] > self.ALLOWED * sum(spent)
