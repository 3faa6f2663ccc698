"""A fork server and supervisors whose behaviour the test sets, for the keeper: ``stand_in.py FILE``, a file with behaviours.

The first supervisor has the first behaviour, and so on; all later ones have the last.  What happens is told on stdout.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from supervisor.keeper import channel
from supervisor.keeper.channel import Channel, ClosedError

BEAT_S = 0.05


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class StandIn:
    """One supervisor."""

    def __init__(self, descriptor: int) -> None:
        self.keeper = Channel(socket.socket(fileno=descriptor))
        self.keeper.send(channel.STARTED, str(os.getpid()))
        held = []
        while (received := self.keeper.receive(None)) and received[0] != channel.BEGIN:
            if received[1] == channel.FORK_SERVER:
                os.close(received[2])
            else:
                held.append(f"{received[1]}={Path(f'/proc/self/fd/{received[2]}').readlink()}")
        assert received
        number, _, self.why = received[1].partition("\n")
        self.number = int(number)
        tell("started", self.number, os.getpid(), self.why or "-", *held)

    def serve(self, *, ends: bool = True, ready: bool = True) -> None:
        if ready:
            self.keeper.send(channel.READY, f"serving {self.number}")
        ended = 0
        while True:
            self.keeper.send(channel.ALIVE)
            while received := self.keeper.receive(BEAT_S):
                word, arguments, _ = received
                tell("told", self.number, word, *arguments.split("\n"))
                if word == channel.END:
                    ended += 1
                    if ends or ended > 1:
                        self.leave(5 if ended > 1 else 0)
                elif word == channel.RELOAD:
                    self.keeper.send(channel.RELOADED, "1")
                elif word == channel.HAND_OVER:
                    self.keeper.send(channel.HANDED_OVER)
                    os._exit(0)

    def leave(self, code: int) -> None:
        self.keeper.send(channel.LEAVING, str(code))
        os._exit(code)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(self) -> None:
        self.keeper.send(channel.LAST_WORDS, "ValueError: a bug")
        os._exit(1)

    def babble(self) -> None:
        """Say what no supervisor says."""
        for word, arguments in (
            ("started", "x"),
            ("leaving", ""),
            ("reloaded", "x"),
            ("reloaded", "\u00b2"),  # a digit, but not a number for int
            ("hold", "nothing"),
            ("", ""),
            ("a\nb", "\n" * 9000),
        ):
            self.keeper.send(word, arguments)
        self.die()

    def fail_and_hang(self) -> None:
        self.keeper.send(channel.LAST_WORDS, "ValueError: a bug")
        self.keeper.send(channel.READY, "serving")
        self.keeper.send(channel.ALIVE)
        while True:
            signal.pause()

    def refuse(self) -> None:
        self.leave(2)

    def give_up(self) -> None:
        self.keeper.send(channel.READY, "serving")
        self.leave(1)

    def stop(self) -> None:
        """Give one sign of life, and be stopped."""
        self.keeper.send(channel.READY, "serving")
        self.keeper.send(channel.ALIVE)
        os.kill(os.getpid(), signal.SIGSTOP)

    def stubborn(self) -> None:
        self.serve(ends=False)

    def never_ready(self) -> None:
        self.serve(ready=False)

    def deaf(self) -> None:
        """Stay alive, and ignore all orders."""
        while True:
            self.keeper.send(channel.ALIVE)
            time.sleep(BEAT_S)

    def hold(self) -> None:
        """Give the keeper a descriptor, start a process that outlives this one, and die."""
        with Path("/dev/zero").open("rb") as file:
            self.keeper.send(channel.HOLD, "zero", file.fileno())
            self.child(3)
            self.die()

    def hand_over(self) -> None:
        self.child(4)
        self.keeper.send(channel.READY, "serving")
        self.keeper.send(channel.HANDED_OVER)
        os._exit(0)

    def hand_over_at_reload(self) -> None:
        """Hand over for an order to reload when another one has already arrived."""
        self.keeper.send(channel.READY, "serving")
        self.keeper.receive(None)
        tell("read one")
        self.keeper.receive(None)  # the second one: it has arrived, and nothing is done about it
        self.keeper.send(channel.RELOADED, "1")
        self.keeper.send(channel.HANDED_OVER)
        os._exit(0)

    def child(self, code: int) -> None:
        """Start the leader of a group of two: it ends with ``code`` when it is told by SIGTERM."""
        ready, done = os.pipe()
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, lambda *_: os._exit(code))
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                tell("member", os.getpid())
            else:
                tell("leader", os.getpid())
            os.write(done, b".")
            while True:
                signal.pause()
        os.read(ready, 1)
        os.read(ready, 1)


def main(behaviours: list[str]) -> int:
    keeper = Channel.of_descriptor(int(os.environ[channel.VARIABLE]))
    if behaviours == ["unimportable"]:
        return 7
    closes = int(os.environ.get("STAND_IN_CLOSES", "0"))
    tell("prepared", os.getpid(), os.environ.get("NOTIFY_SOCKET", "-"))
    keeper.send(channel.PREPARED)
    try:
        while received := keeper.receive(None):
            if received[0] == channel.SERVE:
                os.close(received[2])
                if closes:  # the supervisor closes this one; the last report is of an earlier one
                    keeper.send(channel.CLOSED, received[1] if int(received[1]) <= closes else "1")
                continue
            between = os.fork()
            if between == 0:
                if os.fork() == 0:
                    keeper.close()
                    os.setsid()
                    stand_in = StandIn(received[2])
                    getattr(stand_in, behaviours[min(stand_in.number, len(behaviours) - 1)])()
                os._exit(0)
            os.close(received[2])
            os.waitpid(between, 0)
    except ClosedError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).read_text().split()))
