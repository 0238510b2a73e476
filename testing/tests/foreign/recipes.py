"""kazoo's client and recipes against the server named on the command line. Exit code 0 if all did their work."""
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError, RolledBackError
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.security import make_digest_acl

WAIT = 30


def check(what, holds):
    print(f"{what}: {bool(holds)}", flush=True)
    if not holds:
        sys.exit(1)


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def parallel(*targets):
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    [thread.start() for thread in threads]
    [thread.join(WAIT) for thread in threads]
    return not any(thread.is_alive() for thread in threads)


a, b = (KazooClient(hosts=sys.argv[1], timeout=6) for _ in range(2))
a.start(timeout=WAIT)
b.start(timeout=WAIT)
root = f"/kazoo-{time.time_ns()}"
a.ensure_path(root)

a.create(root + "/e", b"x", ephemeral=True)
data, stat = b.get(root + "/e")
check("client", data == b"x" and stat.owner_session_id == a.client_id[0])
check("server version, by envi", a.server_version()[0] == 3)
check("sequence", a.create(root + "/s-", sequence=True).endswith("0000000001"))
check("no node", b.exists(root + "/none") is None)

mine, theirs = a.Lock(root + "/lock", "a"), b.Lock(root + "/lock", "b")
check("Lock", mine.acquire(timeout=WAIT) and not theirs.acquire(blocking=False))
check("contenders", mine.contenders() == ["a"])
mine.release()
check("and handed over", theirs.acquire(timeout=WAIT))
theirs.release()

read, read2, write = a.ReadLock(root + "/rw"), b.ReadLock(root + "/rw"), b.WriteLock(root + "/rw")
check("ReadLock", read.acquire(timeout=WAIT) and read2.acquire(timeout=WAIT))
check("keeps writers out", not write.acquire(blocking=False))
read.release()
read2.release()
check("WriteLock", write.acquire(timeout=WAIT))
write.release()

leases = [client.Semaphore(root + "/semaphore", max_leases=2) for client in (a, b, b)]
check("Semaphore", leases[0].acquire(timeout=WAIT) and leases[1].acquire(timeout=WAIT))
check("is full", not leases[2].acquire(blocking=False))
leases[0].release()
check("and free again", leases[2].acquire(timeout=WAIT))
leases[1].release()
leases[2].release()

barrier = a.Barrier(root + "/barrier")
barrier.create()
passed = []
waiter = threading.Thread(target=lambda: passed.append(b.Barrier(root + "/barrier").wait(WAIT)))
waiter.start()
barrier.remove()
waiter.join(WAIT)
check("Barrier", passed == [True])


# A member that leaves removes the mark of readiness, and kazoo's other one may not have seen it yet.
entered = threading.Barrier(2)


def both(client):
    barrier = client.DoubleBarrier(root + "/double", 2)
    barrier.enter()
    entered.wait(WAIT)
    barrier.leave()


check("DoubleBarrier", parallel(lambda: both(a), lambda: both(b)))
elected = []
check("Election", parallel(lambda: a.Election(root + "/election").run(elected.append, 1)) and elected)

queue = a.Queue(root + "/queue")
queue.put(b"1")
queue.put(b"2", priority=5)
check("Queue", len(queue) == 2 and {queue.get(), queue.get()} == {b"1", b"2"})
locking = b.LockingQueue(root + "/locking")
locking.put(b"v")
check("LockingQueue", locking.get(timeout=WAIT) == b"v" and locking.consume() and len(locking) == 0)
counter = a.Counter(root + "/counter")
counter += 3
counter -= 1
check("Counter", b.Counter(root + "/counter").value == 2)
party, party2 = a.Party(root + "/party", "a"), b.Party(root + "/party", "b")
party.join()
party2.join()
check("Party", sorted(party) == ["a", "b"])
party.leave()

children, values = [], []
ChildrenWatch(a, root + "/lock", children.append)
DataWatch(a, root + "/e", lambda data, stat: values.append(data))
b.create(root + "/lock/x")
b.set(root + "/e", b"y")
check("ChildrenWatch", until(lambda: ["x"] in children))
check("DataWatch", until(lambda: values[-1:] == [b"y"]))

good = a.transaction()
good.create(root + "/t", b"1")
good.set_data(root + "/t", b"2")
good.check(root + "/t", 1)
good.delete(root + "/t")
results = good.commit()
check("transaction", results[0] == root + "/t" or results[0][0] == root + "/t")
bad = a.transaction()
bad.create(root + "/t")
bad.delete(root + "/none")
check("rolled back", [type(r) for r in bad.commit()] == [RolledBackError, NoNodeError])
check("nothing applied", a.exists(root + "/t") is None)

a.add_auth("digest", "user:password")
a.create(root + "/secret", b"s", acl=[make_digest_acl("user", "password", all=True)])
try:
    b.get(root + "/secret")
    check("ACL", False)
except NoAuthError:
    check("ACL", a.get(root + "/secret")[0] == b"s")
a.stop()
check("gone with its session", until(lambda: b.exists(root + "/e") is None))
b.stop()
