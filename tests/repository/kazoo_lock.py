"""The program before its move to docent: kazoo's Lock around a number that is read and written."""

import sys
import time

from kazoo.client import KazooClient

zk = KazooClient(hosts=sys.argv[1])
zk.start()
lock = zk.Lock("/examples/kazoo/lock", "kazoo")


def count():
    number, _ = zk.get("/examples/kazoo/count")
    zk.set("/examples/kazoo/count", str(int(number) + 1).encode())


with lock:
    print("held by kazoo", flush=True)
    deadline = time.monotonic() + 60
    while not any(name.startswith("docent") for name in lock.contenders()):
        if time.monotonic() > deadline:
            sys.exit("docent does not contend")
        time.sleep(0.01)
    print("docent waits", flush=True)
    count()
for _ in range(19):
    with lock:
        count()
zk.stop()
