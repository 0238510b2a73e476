"""kazoo's own tests of reconfig against the servers named on the command line. Exit code 0 if all pass."""

import contextlib
import sys
import types
import unittest
from unittest import mock

try:
    import pytest  # noqa: F401
except ImportError:
    # These tests need two functions of it.
    @contextlib.contextmanager
    def raises(expected):
        try:
            yield
        except expected:
            return
        raise AssertionError(f"{expected} was not raised")

    pytest = mock.MagicMock()
    pytest.raises = raises
    sys.modules["pytest"] = pytest

# For the servers that the harness would start.
for name in ("OpenSSL", "jks"):
    with contextlib.suppress(ImportError):
        __import__(name)
    sys.modules.setdefault(name, mock.MagicMock())

import kazoo.testing.harness as harness  # noqa: E402


class Cluster(list):
    """Servers that run already."""

    def terminate(self):
        pass


SERVERS = Cluster(
    types.SimpleNamespace(address=address, running=True) for address in sys.argv[1].split(",")
)
harness.get_global_cluster = lambda: SERVERS

from kazoo.tests.test_client import TestReconfig  # noqa: E402

suite = unittest.defaultTestLoader.loadTestsFromTestCase(TestReconfig)
result = unittest.TextTestRunner(verbosity=2).run(suite)
print(f"{result.testsRun - len(result.skipped)} run, ok: {result.wasSuccessful()}")
sys.exit(not result.wasSuccessful())
