# SPDX-License-Identifier: Apache-2.0
"""Hosts behind one switch. Any link can be cut, in each direction separately, and healed.

    with Network("s0", "s1", "n0") as network:
        subprocess.Popen([*network.prefix("s0"), "weir", "serve", ...])     runs on s0
        network.address("s0")
        network.part({"s0"}, {"s1", "n0"})      s0 and the others do not hear each other
        network.drop("n0", to="s1")             s1 does not hear n0; n0 hears s1
        network.lose(10)                        one packet of ten does not arrive, anywhere
        network.heal()                          all links work again

A host is a network namespace with a veth into a bridge, which is in its own namespace, so the rest
of the machine sees nothing of this and addresses cannot collide. Packets of a cut link are dropped
at the receiver: no error is sent, connections hang as when a cable is pulled.

Names contain the process id of the test, which has one network at a time. Leaving the block removes
the hosts; hosts of a killed test, and processes that still run on them, are removed when the next
test starts.
"""
import contextlib
import os
import re
import signal
import subprocess

from world import STUCK

HUB = "hub"  # the host of the switch; it is never cut
NAME = re.compile(r"weirnet-(\d+)-\w+")
RULES = """
table inet cut {
  set senders { type ipv4_addr; }
  chain lossy { }
  chain arriving {
    type filter hook input priority 0; policy accept;
    ip saddr @senders drop
    jump lossy
  }
}
"""


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=STUCK,
                          check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def take_away(space):
    """Removes a namespace and the processes in it."""
    for pid in run("ip", "netns", "pids", space).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    run("ip", "netns", "del", space)


def take_leftovers_away():
    """Removes the namespaces of killed tests."""
    for line in run("ip", "netns", "list").splitlines():
        left = NAME.match(line)
        if left and (int(left[1]) == os.getpid() or not is_alive(int(left[1]))):
            # Another test may do the same at the same time.
            with contextlib.suppress(AssertionError):
                take_away(left[0])


class Network:
    def __init__(self, *hosts):
        self.hosts = hosts
        self.addresses = {name: f"10.213.75.{i}" for i, name in enumerate((HUB, *hosts), 1)}
        self.made = []

    def __enter__(self):
        take_leftovers_away()
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.made:
            take_away(self.space(name))
        self.made = []

    def make(self):
        for name in (HUB, *self.hosts):
            run("ip", "netns", "add", self.space(name))
            self.made.append(name)
        lines = ["link add name switch type bridge", "link set switch up",
                 f"addr add {self.address(HUB)}/24 dev switch"]
        for name in self.hosts:
            lines += [f"link add name {name} type veth peer name net netns {self.space(name)}",
                      f"link set dev {name} master switch up"]
        self.ip(HUB, lines)
        for name in self.hosts:
            self.ip(name, ["link set lo up", "link set net up",
                           f"addr add {self.address(name)}/24 dev net"])
            self.nft(name, RULES)

    def space(self, name):
        return f"weirnet-{os.getpid()}-{name}"

    def address(self, name):
        return self.addresses[name]

    def prefix(self, name=HUB):
        """The prefix of a command that runs it there."""
        return ["ip", "netns", "exec", self.space(name)]

    def ip(self, name, lines):
        run("ip", "-netns", self.space(name), "-batch", "-", text="\n".join(lines))

    def nft(self, name, text):
        run(*self.prefix(name), "nft", "-f", "-", text=text)

    def drop(self, *senders, to):
        """Packets of these hosts do not arrive at one host."""
        members = ", ".join(self.address(name) for name in senders)
        self.nft(to, f"add element inet cut senders {{ {members} }}")

    def part(self, here, there):
        """Cuts both directions between the two sets."""
        for one, other in (here, there), (there, here):
            for name in one:
                self.drop(*other, to=name)

    def lose(self, one_in):
        for name in self.hosts:
            self.nft(name, f"add rule inet cut lossy numgen random mod {one_in} == 0 drop")

    def heal(self):
        for name in self.hosts:
            self.nft(name, "flush set inet cut senders; flush chain inet cut lossy")

    def connections(self, name):
        """The peer addresses of its established TCP connections."""
        lines = run(*self.prefix(name), "ss", "-Htn", "state", "established").splitlines()
        peers = [line.split()[-1].rpartition(":")[0] for line in lines]
        return [peer.strip("[]").removeprefix("::ffff:") for peer in peers]
