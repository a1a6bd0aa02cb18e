# SPDX-License-Identifier: Apache-2.0
"""A cluster whose links are cut, lossy or slow and whose parts pause and die; limits are counted at
the clients.

Three servers and three nodes of etcd run on separate hosts (tests/cluster/network.py). Each server
has a client that always reaches it and sends more than the limit. A random fault lasts for some
seconds; then it is healed, and all servers must be one cluster again in a bounded time. All clients
together stay within the limit in every window, whatever happened.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import time

from drill import CannotRun
from network import Network
from world import STUCK, Load, World, bound

SERVERS, NODES = ("s0", "s1", "s2"), ("n0", "n1", "n2")
LIMIT = 1500
WIDTHS = 5, 0.5         # seconds, of the windows in which the clients count
FAULT = (0.5, 6.0)      # seconds that a fault lasts
PAUSE = (0.1, 3.0)
ONE_AGAIN = 30.0        # seconds from the end of a fault until all are joined under one leader
LIMITS = "the clients of all servers together stay within the limit of the cluster"
HEALS = "when a fault is over, all servers are one cluster again"
SERVES = "every server serves its clients when the cluster is whole"


class Faults:
    """Each method causes one fault, and stores in self.undo how to undo it."""

    def __init__(self, drill, network, world):
        self.choose = drill.random
        self.network = network
        self.world = world
        self.undo = contextlib.ExitStack()
        self.has_delay = self.can_delay()

    def can_delay(self):
        """Whether the kernel supports netem."""
        done = subprocess.run([*self.network.prefix("s0"), "tc", "qdisc", "add", "dev", "lo",
                               "root", "netem", "delay", "1ms"], capture_output=True, check=False)
        return done.returncode == 0

    def all(self):
        faults = [self.cut_server, self.cut_from_etcd, self.cut_one_way, self.cut_in_two,
                  self.lose_packets, self.pause_server, self.pause_etcd, self.kill_etcd,
                  self.kill_all_of_etcd, self.kill_server, self.stop_server,
                  self.kill_all_servers, self.stop_all_servers]
        return faults + [self.delay_packets] if self.has_delay else faults

    def any_server(self):
        return self.choose.choice(SERVERS)

    def cut_server(self):
        name = self.any_server()
        self.network.part({name}, {*SERVERS, *NODES} - {name})

    def cut_from_etcd(self):
        self.network.part({self.any_server()}, {*NODES})

    def cut_one_way(self):
        sender, receiver = self.choose.sample((*SERVERS, *NODES), 2)
        self.network.drop(sender, to=receiver)

    def cut_in_two(self):
        hosts = [*SERVERS, *NODES]
        some = set(self.choose.sample(hosts, self.choose.randint(1, len(hosts) - 1)))
        self.network.part(some, set(hosts) - some)

    def lose_packets(self):
        self.network.lose(self.choose.randint(5, 20))

    def delay_packets(self):
        delay = f"{self.choose.randint(1, 200)}ms"
        for name in (*SERVERS, *NODES):
            change = [*self.network.prefix(name), "tc", "qdisc"]
            subprocess.run([*change, "add", "dev", "net", "root", "netem", "delay", delay,
                            f"{self.choose.randint(1, 50)}ms"], check=True)
            self.undo.callback(subprocess.run, [*change, "del", "dev", "net", "root"], check=True)

    def pause_server(self):
        member = self.world.members[self.any_server()]
        member.stop()
        self.undo.callback(member.resume)

    def pause_etcd(self):
        process = self.choose.choice(self.world.etcd.processes)
        process.send_signal(signal.SIGSTOP)
        self.undo.callback(process.send_signal, signal.SIGCONT)

    def kill_etcd(self):
        self.end_nodes(self.choose.randrange(len(NODES)))

    def kill_all_of_etcd(self):
        self.end_nodes(*range(len(NODES)))

    def kill_server(self):
        self.end_servers(signal.SIGKILL, self.any_server())

    def stop_server(self):
        self.end_servers(signal.SIGTERM, self.any_server())

    def kill_all_servers(self):
        self.end_servers(signal.SIGKILL, *SERVERS)

    def stop_all_servers(self):
        self.end_servers(signal.SIGTERM, *SERVERS)

    def end_nodes(self, *nodes):
        for node in nodes:
            self.world.etcd.kill(node)
            self.undo.callback(self.world.etcd.start, node)

    def end_servers(self, how, *names):
        for name in names:
            self.world.members[name].end(how)
            self.undo.callback(self.world.start_again, name)

    def heal(self):
        self.undo.close()
        self.network.heal()


class Watch:
    """Counts the replies of the clients."""

    def __init__(self, drill, load):
        self.drill = drill
        self.load = load
        self.begun = self.checked = time.monotonic()
        self.worst = {width: 0.0 for width in WIDTHS}
        self.total = 0

    def check(self, fault):
        """Checks every window since the last call, including those that started before it."""
        now = time.monotonic()
        self.total += len(self.load.completions(self.checked, now))
        for width in WIDTHS:
            allowed = bound(LIMIT, width, len(SERVERS))
            found = self.load.most(width, max(self.begun, self.checked - max(WIDTHS)), now)
            self.worst[width] = max(self.worst[width], found / (width * LIMIT))
            self.drill.holds(LIMITS, found <= allowed,
                             f"{fault}: {found} in {width} s, {allowed:.0f} are allowed")
        self.checked = now


def is_one(world):
    """All are joined in epochs, and name the same leader."""
    with contextlib.suppress(OSError, AssertionError, KeyError):
        states = [member.status() for member in world.members.values()]
        return (len(states) == len(SERVERS) and len({one["leader"] for one in states}) == 1
                and all(one["state"] == "joined" and one["epoch"] > 0 for one in states))
    return False


def one_again(drill, world, fault):
    begun = time.monotonic()
    while not is_one(world):
        if time.monotonic() - begun > 2 * ONE_AGAIN:
            drill.holds(HEALS, False, f"{fault}: not within {2 * ONE_AGAIN:.0f} s")
            return None
        time.sleep(0.05)
    return time.monotonic() - begun


def serves_all(drill, load, fault):
    """Each server answers its client from now on."""
    begun = time.monotonic()
    for name, client in load.clients.items():
        count = len(client.completions)
        while len(client.completions) == count:
            if not drill.holds(SERVES, time.monotonic() - begun < STUCK, f"{fault}: {name}"):
                return False
            time.sleep(0.02)
    return True


def run(drill):
    if os.geteuid() != 0:
        raise CannotRun("network namespaces need root")
    for program, package in (("ip", "iproute2"), ("nft", "nftables"), ("etcd", "etcd-server")):
        if not shutil.which(program):
            raise CannotRun(f"no {program}; as root run: apt-get install {package}")
    healed, counts = [], {}
    with Network(*SERVERS, *NODES) as network, \
            World(servers=len(SERVERS), etcd_nodes=len(NODES), network=network) as world:
        world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
        with Load(world) as load:
            load.heat(*world.members)
            watch = Watch(drill, load)
            faults = Faults(drill, network, world)
            while drill.goes_on() and len(drill.broken) < 10:
                fault = drill.random.choice(faults.all())
                name = fault.__name__.replace("_", " ")
                counts[name] = counts.get(name, 0) + 1
                fault()
                time.sleep(drill.random.uniform(*(PAUSE if "pause" in name else FAULT)))
                faults.heal()
                took = one_again(drill, world, name)
                if took is None or not serves_all(drill, load, name):
                    break
                healed.append(took)
                watch.check(name)
                drill.progress(f"{len(healed)} faults, the last: {name}, healed in {took:.1f} s")
            faults.heal()
    for name, count in sorted(counts.items()):
        drill.figure(f"{name}", f"{count}")
    if not faults.has_delay:
        drill.figure("delay packets", "none: the kernel has no netem")
    drill.figure("requests answered", f"{watch.total:,}")
    for width in WIDTHS:
        allowed = bound(LIMIT, width, len(SERVERS)) / (width * LIMIT)
        drill.figure(f"most in {width:g} s, of the limit", f"{100 * watch.worst[width]:.1f} %",
                     f"<= {100 * allowed:.1f} %")
    drill.at_most(HEALS, "longest until one cluster again", max(healed, default=0.0), ONE_AGAIN,
                  "s")
