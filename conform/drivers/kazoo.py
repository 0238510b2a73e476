"""kazoo's driver for `docent conform client`: `python3 kazoo.py CONNECT`."""

import sys
import threading

del sys.path[0]  # This file has the name of the library, and would be imported in its place.

from kazoo.client import KazooClient
from kazoo.exceptions import RolledBackError
from kazoo.protocol.states import EventType, KazooState

STATES = {KazooState.CONNECTED: "connected", KazooState.SUSPENDED: "suspended", KazooState.LOST: "expired"}
OUTPUT = threading.Lock()


def say(line):
    with OUTPUT:
        sys.stdout.write(line.rstrip() + "\n")
        sys.stdout.flush()


def event(path):
    def called(event):
        # kazoo forgets its watches with the connection, and calls them once more, with this type.
        say(f"! {'end' if event.type == EventType.NONE else 'event'} {path}")

    return called


def multi(client, paths):
    transaction = client.transaction()
    for path in paths:
        transaction.create(path)
    for result in transaction.commit():
        if isinstance(result, Exception) and not isinstance(result, RolledBackError):
            raise result


def get(client, path):
    data, stat = client.get(path)
    return f"{stat.version} {(data or b'').decode(errors='replace')}"


def answer(client, verb, words):
    if verb == "connect":
        client.start()
        return ""
    if verb == "create":
        return client.create(words[0], words[1].encode())
    if verb == "get":
        return get(client, words[0])
    if verb == "set":
        return client.set(words[0], words[1].encode(), *map(int, words[2:])).version
    if verb == "delete":
        client.delete(words[0])
        return ""
    if verb == "children":
        return len(client.get_children(words[0]))
    if verb == "watch":
        return "true" if client.exists(words[0], watch=event(words[0])) else "false"
    if verb == "multi":
        return multi(client, words) or ""
    if verb == "state":
        return STATES[client.state]
    client.stop()
    client.close()
    return ""


def main():
    client = None
    for line in sys.stdin:
        number, verb, *words = line.rstrip("\n").split(" ")
        if verb == "connect":
            client = KazooClient(sys.argv[1], timeout=int(words[0]) / 1000)
            client.add_listener(lambda state: say(f"! state {STATES[state]}"))
        try:
            say(f"{number} ok {answer(client, verb, words)}")
        except Exception as error:
            # NoNodeError is NONODE.
            say(f"{number} error {type(error).__name__.removesuffix('Error').upper()}")
        if verb == "close":
            break


main()
